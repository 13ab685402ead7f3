"""An answer for a person: its text, what it rests on, what it cost and disclosed."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Self

from dragonrt.modes import entry_of
from dragonrt.modes.mode import Finish
from dragonrt.node.answers import client_session
from dragonrt.node.answers.citing import (
    Code,
    DecidedText,
    Mark,
    cited,
    content,
    is_refusal,
    marks,
    missing,
    named,
    texts,
)
from dragonrt.privacy.disclosure import FLOOR
from dragonrt.service.text import JoinedText
from dragonrt.settings import traced
from dragonrt.side import Side
from dragonrt.traces import statistics
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import Noticed
from dragonrt.traces.file import own_fields
from dragonrt.wire import messages as wire


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that one token completed; `device_share` from 0 to 1 is the device's part in it."""

    text: str
    device_share: float


@dataclass(frozen=True, slots=True)
class Source:
    """A document that an answer rests on: the `sentence` read, and its evidence in `bits`."""

    side: Side
    file: str
    title: str
    relevance: float
    bits: float
    sentence: str

    @classmethod
    def of(cls, side: Side, found: wire.Source) -> Self:
        """Return the Source of a document that `side` sent as one of its sources."""
        return cls(side, found.name, found.title, found.relevance, found.bits, found.sentence)

    def to_object(self) -> dict[str, Any]:
        """Return the JSON object of a source, for `--json` and the APIs."""
        rounded = {"relevance": round(self.relevance, 4), "bits": round(self.bits, 2)}
        return asdict(self) | rounded


@dataclass(frozen=True)
class Answer:
    """The answer to a question, or to one part of it.

    `decoded` has its tokens and events; `pieces` are the text as it was generated. `refusal` is the
    model's refusal if no document has the answer. A part is the `place[0]`th of `place[1]` and
    begins at the character `start` of the whole text. The whole is the 0th, with its parts in
    `answered`; its costs, and what left the device, are sums.
    """

    text: str
    decoded: client_session.Answer
    refusal: str = ""
    pieces: tuple[DecidedText, ...] = ()
    place: tuple[int, int] = (1, 1)
    start: int = 0
    answered: tuple["Answer", ...] = ()

    @classmethod
    def joined(
        cls, prompt: str, text: JoinedText, parts: Sequence["Answer"], finish: Finish
    ) -> "Answer":
        """Return the answers to the parts of a prompt as one."""
        first, answers = parts[0], [part.decoded for part in parts]
        whole = replace(
            first.decoded,
            question=replace(first.decoded.question, prompt=prompt),
            records=[record for each in answers for record in each.records],
            finish=finish,
            bytes_sent=sum(each.bytes_sent for each in answers),
            bytes_received=sum(each.bytes_received for each in answers),
        )
        placed = zip(parts, text.places, strict=False)
        answered = tuple(replace(part, start=start) for part, start in placed)
        place = 0, first.place[1]
        return cls(text.text, whole, first.refusal, place=place, answered=answered)

    @property
    def finish(self) -> str:
        """Return why it ended: stop, length or cancelled."""
        return self.decoded.finish.value

    @property
    def notices(self) -> list[Noticed]:
        """Return what the user should know, such as that the cloud was away: `kind` and `text`."""
        return self.decoded.notices

    @property
    def parts(self) -> Sequence["Answer"]:
        """Return an answer for each part of the question."""
        return self.answered or [self]

    @cached_property
    def _cited(self) -> list[tuple[Side, wire.Source]]:
        if is_refusal(self.text, self.refusal):
            return []
        read, moved, asked = self.decoded.passages, self.decoded.moved, self.decoded.question
        own = cited(read, moved.files, self.text, asked.prompt)
        theirs = (each.sources for each in self.decoded.attributions if each is not None)
        found = named(own, dict.fromkeys(chain.from_iterable(theirs)), moved.other)
        return [each for each in found if asked.document or is_related(each[1], asked.prompt)]

    @property
    def sources(self) -> list[Source]:
        """Return the documents that it rests on, the device's first; none for a refusal."""
        found = [Source.of(*each) for part in self.parts for each in part._cited]
        return [*{(each.side, each.file, each.sentence): each for each in found}.values()]

    @cached_property
    def marked(self) -> list[Mark]:
        """The words of the text that one of the sources moved, in order."""
        found = []
        for part in self.parts:
            answer, moved = part.decoded, part.start - self.start
            for mark in marks(part.pieces, answer.passages, answer.moved, part._cited):
                found.append(replace(mark, start=mark.start + moved, end=mark.end + moved))
        return found

    @property
    def marks(self) -> list[dict[str, Any]]:
        """Return the words that a source moved: start_index and end_index in characters, file."""
        return [
            {
                "start_index": mark.start,
                "end_index": mark.end,
                "side": mark.side,
                "file": mark.source.name,
                "chunk_start": mark.place,
            }
            for mark in self.marked
        ]

    @cached_property
    def not_found(self) -> list[Code]:
        """The numbers and codes of the text that neither a document nor the user has.

        Empty if another side took part and does not report what its documents have.
        """
        found = []
        for part in self.parts:
            moved = part.start - self.start
            found += [replace(c, start=c.start + moved, end=c.end + moved) for c in part._missing()]
        return found

    def _missing(self) -> list[Code]:
        answer, question = self.decoded, self.decoded.question
        asked = (question.prompt, question.instructions, *(asked for asked, _ in question.history))
        found = missing(self.text, [*asked, *texts(answer.passages)])
        missed = [set(each.missing) if each else set() for each in answer.attributions]
        return [code for code in found if all(code.text in each for each in missed)]

    @property
    def statistics(self) -> dict[str, Any]:
        """Return times, acceptances and bytes; None for what was not measured."""
        of_mode = entry_of(self.decoded.settings).statistics
        return statistics.statistics(AnswerCounts.of(self.decoded.records), of_mode)

    @property
    def ledger(self) -> dict[str, Any]:
        """Return what left this side for it (SPEC 1.10): bytes, tokens, bits of each file."""
        left = statistics.ledger(AnswerCounts.of(self.decoded.records))
        bits: dict[str, float] = {}
        for part in self.parts:
            files = dict.fromkeys(passage.file for passage in part.decoded.passages)
            moved = AnswerCounts.of(part.decoded.records).file_bits
            for name, each in zip(files, moved, strict=False):
                bits[name] = round(bits.get(name, 0.0) + each, 2)
        del left["evidence_bits_of_files"]
        return {**left, "files": [{"file": name, "bits": each} for name, each in bits.items()]}

    def to_json(self) -> list[dict[str, Any]]:
        """Return the objects that `--json` prints: each part of the question, then the whole."""
        return [each.to_object() for each in (*self.answered, self)]

    def to_object(self) -> dict[str, Any]:
        """Return one object for all parts together."""
        answer, entry = self.decoded, entry_of(self.decoded.settings)
        part, of = self.place
        asked = [(each.decoded.question.prompt, each.start) for each in self.parts]
        return {
            "question": answer.question.prompt,
            "part": part,
            "of": of,
            "text": self.text,
            "tokens": answer.tokens,
            "finish": self.finish,
            "mode": entry.name,
            "approximate": not entry.exact,
            **traced(answer.question),
            **traced(answer.settings),
            "sources": [each.to_object() for each in self.sources],
            "marks": self.marks,
            "not_found": [code_json(each) for each in self.not_found],
            "asked": [{"question": each, "start_index": start} for each, start in asked],
            "notices": [own_fields(each) for each in self.notices],
            "statistics": self.statistics,
            "ledger": self.ledger,
        }


def is_related(source: wire.Source, question: str) -> bool:
    """Return whether a document is near to a question, or has one of its words."""
    words = content(f"{source.name} {source.title} {source.sentence}")
    return source.relevance >= FLOOR or bool(words & content(question))


def code_json(code: Code) -> dict[str, Any]:
    """Return a number or code and its place, in characters, in the text."""
    return {"text": code.text, "start_index": code.start, "end_index": code.end}
