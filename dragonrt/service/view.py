"""Render answers as text: coloured by side, with sources, warnings and a line of costs."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from rich.console import Console
from rich.text import Text

from dragonrt.modes.mode import Finish
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.service.answer import Answer, Piece, Source
from dragonrt.service.chat import News
from dragonrt.traces.events import Noticed

COLOURS = {"device": "cyan", "cloud": "yellow", "both": "default"}
SHOWN_FILES = 3
"""The most files whose evidence is printed under an answer."""
CLEAR_SHARE = 0.75
"""The share of a token's probability from which it counts as one side's."""

ASKED = "the question and the conversation before it"
LEAVES: dict[Disclosure | None, str] = {
    Disclosure.DRAFTS: f"{ASKED}, and every drafted token with its distribution, from which can be "
    "read what your documents say about the question",
    Disclosure.ANSWER: f"{ASKED}, and the answer's tokens",
    Disclosure.REDACTED: f"{ASKED}, and the answer's tokens that are likely for the cloud, too",
    None: f"{ASKED}, and drafted tokens, with distributions if the codec sends them",
}
"""What is sent for a question at each level; None: in a mode without levels (docs/privacy.md)."""

HEADING, NOTE = "Sources:", "Note: "
_FILES = rf"{HEADING}(?:\n- (?:device|cloud): [^\n]*)+"
_NOTES = rf"{NOTE}[^\n]*(?:\n{NOTE}[^\n]*)*"
_BEHIND = re.compile(rf"\n\n(?:{_FILES}(?:\n\n?{_NOTES})?|{_NOTES})\Z")


def likely_side(piece: Piece) -> str:
    """Return the side that gave 75 % of a piece's probability, "device" or "cloud", else "both"."""
    if piece.device_share >= CLEAR_SHARE:
        return "device"
    return "cloud" if piece.device_share <= 1 - CLEAR_SHARE else "both"


class AnswerView:
    """A view of one answer at a time: prints its pieces on a console while it is generated."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._in_line = False

    def show(self, news: News) -> None:
        """Print news of an answer: a piece of text in its side's colour, or a notice as a line."""
        if isinstance(news, Piece):
            shown = Text(news.text, style=COLOURS[likely_side(news)])
            self._console.print(shown, end="", soft_wrap=True)
            self._in_line = not news.text.endswith("\n")
        elif isinstance(news, Noticed):
            self.end_line()
            self._line(Text(f"[{news.text}]", style="italic red"))

    def end_line(self) -> None:
        if self._in_line:
            self._console.print()
        self._in_line = False

    def end(self, answer: Answer) -> None:
        if answer.decoded.finish is Finish.CANCELLED and self._console.is_terminal:
            self._in_line = True  # the terminal has shown ^C
        self.end_line()
        for part in answer.parts:
            if part.decoded.question.prompt != answer.decoded.question.prompt:
                self._line(Text(f"  {part.decoded.question.prompt}", style="dim"))
            self._sources(part)
        for warning in warnings(answer):
            self._console.print(Text(f"  {warning}", style="italic red"), soft_wrap=True)
        for text in (cost_line(answer), ledger_line(answer.ledger)):
            self._line(Text(f"  {text}", style="dim"))

    def _sources(self, answer: Answer) -> None:
        for source in answer.sources:
            line = Text("  ")
            line.append(f"{source.side:<6} ", style=COLOURS[source.side])
            line.append(f"{source.relevance:.2f}  ", style="dim")
            line.append(source.file)
            if heading := title(source):
                line.append(f"  {heading}", style="dim")
            line.truncate(self._console.width, overflow="ellipsis")
            self._console.print(line, soft_wrap=True)
            if source.sentence:
                self._line(Text(f"         “{source.sentence}”", style="dim"))

    def _line(self, line: Text) -> None:
        self._console.print(line, soft_wrap=not self._console.is_terminal)


def warnings(answer: Answer) -> list[str]:
    """Return [line]: the answer's numbers and codes that no document read contains; [] if none."""
    codes = dict.fromkeys(code.text for code in answer.not_found)
    return [f"Not found in the documents: {', '.join(codes)}"] if codes else []


def title(source: Source) -> str:
    """Return a document's title to show; "" if it repeats the file's name or the text's start."""
    name = PurePath(source.file)
    if name.suffix.lower() == ".txt" or source.title.endswith((".", "!", "?", "…")):
        return ""
    return "" if _words(source.title) == _words(name.stem) else source.title


def _words(text: str) -> list[str]:
    return text.casefold().replace("_", " ").replace("-", " ").split()


def cost_line(answer: Answer) -> str:
    """Return the answer's tokens, times, acceptance, bytes per token and seed, in one line."""
    numbers = answer.statistics
    acceptance = (f"{name} {_percent(part)}" for name, part in numbers["acceptance"].items())
    parts = [
        "stopped" if answer.decoded.finish is Finish.CANCELLED else "",
        f"{numbers['tokens']} tokens",
        _number(numbers["time_to_first_token_ms"], "first {:.0f} ms"),
        _number(numbers["ms_per_token"], "{:.1f} ms/token"),
        f"accepted {' '.join(acceptance)}",
        _number(numbers["bytes_per_token"], "{:.0f} bytes/token"),
    ]
    if "unverified" in numbers:
        parts.append(f"approximate: {numbers['unverified']} tokens not verified")
    question = answer.decoded.question
    if question.sampler.temperature > 0:  # without a temperature every seed gives the same text
        parts.append(f"seed {question.seed}")
    if (alone_from := numbers.get("alone_from")) is not None:
        parts.append("partly without the cloud" if alone_from else "without the cloud")
    return " | ".join(part for part in parts if part)


def ledger_line(ledger: Mapping[str, Any]) -> str:
    """Return the ledger as one line: the bytes, tokens and distributions that left the device.

    It adds by how many bits the own documents, and up to three files, made the answer likelier.
    """
    evidence = ledger["evidence_bits"]
    files = sorted(ledger["files"], key=lambda each: -each["bits"])[:SHOWN_FILES]
    parts = [
        f"left this side: {ledger['question_bytes'] + ledger['history_bytes']} bytes asked",
        f"{ledger['tokens_sent']} tokens, {ledger['distributions_sent']} distributions",
        f"{ledger['tokens_not_in_answer']} not in the answer",
        f"{ledger['tokens_withheld']} withheld" if ledger["tokens_withheld"] else "",
        f"{ledger['revealed_bits']:g} bits revealed" if ledger["revealed_bits"] else "",
        "" if evidence is None or evidence < 0 else f"{round(evidence)} bits of evidence",
        *(f"{each['file']} {round(each['bits'])}" for each in files if round(each["bits"]) > 0),
    ]
    return " | ".join(part for part in parts if part)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def sources_text(sources: Sequence[Source], notices: Sequence[str]) -> str:
    """Return text to append to an answer: a line for each source, and for each notice."""
    lines = [HEADING] if sources else []
    for source in sources:
        heading = title(source)
        quoted = f": “{source.sentence}”" if source.sentence else ""
        lines.append(f"- {source.side}: {source.file}{f' ({heading})' if heading else ''}{quoted}")
    notes = [f"{NOTE}{notice}" for notice in notices]
    # A file's name may have any character. Markdown needs the empty line between the two.
    blocks = [[" ".join(line.splitlines()) for line in block] for block in (lines, notes)]
    return "".join("\n\n" + "\n".join(block) for block in blocks if block)


def without_sources(text: str) -> str:
    """Return an answer without its text of `sources_text`, so that no model imitates that list."""
    return _BEHIND.sub("", text)
