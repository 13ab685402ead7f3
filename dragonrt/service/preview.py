"""Say what would leave for a question, before it is asked."""

from dataclasses import dataclass, replace
from typing import Any

from dragonrt.node.answers.client_session import completed
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.privacy.preview import Preview
from dragonrt.service.chat import Chat


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A preview of a question of so many `parts` to the sides `to`, at one level.

    `documents` are the names of those that this side answers from: they stay here.
    """

    level: Disclosure | None
    preview: Preview
    parts: int
    to: tuple[str, ...]
    documents: tuple[str, ...]

    @property
    def leaves(self) -> list[str]:
        """Return a line for each thing that leaves."""
        found, kinds = self.preview, self.preview.kinds
        parts = f", asked in {self.parts} parts" if self.parts > 1 else ""
        lines = [f"the question: {found.bytes_of('question')} bytes{parts}"]
        if "history" in kinds:
            more = " and the answers to earlier parts" if self.parts > 1 else ""
            lines.append(f"the conversation before: {found.bytes_of('history')} bytes{more}")
        lines.append("settings: lengths, sampler, seed")
        if "distributions" in kinds:
            lines.append(
                "drafted tokens with their distributions: all that your documents say about the "
                "question can be read from them"
            )
        elif "tokens" in kinds and found.withholds:
            lines.append("the answer's tokens that the other side finds likely, too")
        elif "tokens" in kinds:
            lines.append("the answer's tokens" if self.level else "drafted and accepted tokens")
        if "documents" in kinds:
            lines.append("names and sentences of documents")
        return lines

    @property
    def stays(self) -> list[str]:
        """Return a line for each thing that stays here."""
        files = ", ".join(self.documents)
        read = f"read for the answer, and may move its words: {files}" if files else ""
        kept = "the text of your documents"
        if "documents" not in self.preview.kinds:
            kept += ", their names and titles"
        return [kept, read or "no document of yours is read for it"]

    @property
    def lines(self) -> list[str]:
        """Return all of it as lines of a terminal."""
        level = f", at level {self.level}" if self.level else ""
        return [
            f"Sent to {', '.join(self.to)} for this question{level}:",
            *(f"  {line}" for line in self.leaves),
            "Stays here:",
            *(f"  {line}" for line in self.stays),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the facts, and the lines for people."""
        found = self.preview
        return {
            "level": self.level,
            "to": list(self.to),
            "parts": self.parts,
            **{f"{kind}_bytes": found.bytes_of(kind) for kind in ("question", "history")},
            **{kind: kind in found.kinds for kind in ("tokens", "distributions")},
            "documents_named": "documents" in found.kinds,
            "documents_read": list(self.documents),
            "leaves": self.leaves,
            "stays": self.stays,
        }


async def foresee(chat: Chat, prompt: str) -> list[Foreseen]:
    """Return what would leave at the device's level, then at each that discloses less.

    Nothing is sent. Raises DragonError for a question that cannot be asked.
    """
    device, found = chat.device, []
    for how in device.levels:
        at_level = replace(device, settings=how)
        other = Chat(at_level, chat.question, chat.seed, chat.stops, chat.history)
        preview, asked = await other.foreseen(prompt)
        whole = [completed(each, how) for each in asked]
        files = [name for each in whole for name in await device.side.files_for(each)]
        documents = tuple(dict.fromkeys(files))
        found.append(Foreseen(how.level, preview, len(asked), tuple(device.connectors), documents))
    return found
