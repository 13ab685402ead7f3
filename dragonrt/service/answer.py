"""The answer to a question: its text, sources, marks (cited words), costs and disclosure ledger."""

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
    content_words,
    is_refusal,
    marks,
    missing,
    shown_sources,
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
    """Text of an answer, to whose probability the device gave the share `device_share` (0 to 1)."""

    text: str
    device_share: float


@dataclass(frozen=True, slots=True)
class Source:
    """A document that an answer used, and the `sentence` in it that best matches the answer.

    `relevance` is its score for the question, `bits` log2 of how much likelier it made the answer.
    """

    side: Side
    file: str
    title: str
    relevance: float
    bits: float
    sentence: str

    @classmethod
    def of(cls, side: Side, found: wire.Source) -> Self:
        """Convert `found`, a source in a wire message, to a Source of a file on `side`."""
        return cls(side, found.name, found.title, found.relevance, found.bits, found.sentence)

    def to_object(self) -> dict[str, Any]:
        """Return the fields as a JSON object, rounded, for `--json` and the APIs."""
        rounded = {"relevance": round(self.relevance, 4), "bits": round(self.bits, 2)}
        return asdict(self) | rounded


@dataclass(frozen=True)
class Answer:
    """The answer to a question, or to one part of it, or the joined answers to several parts.

    `decoded` has the tokens and trace records. `pieces` pairs each new text with the TokenDecided
    event that completed it. `refusal` is the sentence by which the model says that no document has
    the answer. `place` is (number, count): this part's number from 1, and how many parts there are.
    The part's text begins at index `start` of the joined text. A joined answer has the number 0,
    the answers to its parts in `answered`, and the sums of their costs.
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
        """Join the Answers to a prompt's parts; `text` joins theirs, `finish` says why it ended."""
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
        """Return why this complete answer ended: "stop", "length" or "cancelled"."""
        return self.decoded.finish.value

    @property
    def notices(self) -> list[Noticed]:
        """Return the notices for the user, such as that the cloud was away, each once."""
        return self.decoded.notices

    @property
    def parts(self) -> Sequence["Answer"]:
        """Return an Answer for each part of the question; [self] if the question has one part."""
        return self.answered or [self]

    @cached_property
    def _cited(self) -> list[tuple[Side, wire.Source]]:
        if is_refusal(self.text, self.refusal):
            return []
        read, evidence, asked = self.decoded.passages, self.decoded.evidence, self.decoded.question
        own = cited(read, evidence.files, self.text, asked.prompt)
        theirs = (each.sources for each in self.decoded.attributions if each is not None)
        found = shown_sources(own, dict.fromkeys(chain.from_iterable(theirs)), evidence.other)
        return [each for each in found if asked.document or is_related(each[1], asked.prompt)]

    @property
    def sources(self) -> list[Source]:
        """Return the documents that each part used, the device's first; none for a refusal."""
        found = [Source.of(*each) for part in self.parts for each in part._cited]
        return [*{(each.side, each.file, each.sentence): each for each in found}.values()]

    @cached_property
    def marked(self) -> list[Mark]:
        """Return the Marks of this text in order: runs of words, each with its source."""
        found = []
        for part in self.parts:
            answer, shift = part.decoded, part.start - self.start
            for mark in marks(part.pieces, answer.passages, answer.evidence, part._cited):
                found.append(replace(mark, start=mark.start + shift, end=mark.end + shift))
        return found

    @property
    def marks(self) -> list[dict[str, Any]]:
        """Return the sources of words as JSON: start and end in the text, side, file, chunk."""
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
        """Return the numbers and codes in the text that are in no document and not in the question.

        Empty if the cloud took part but did not report which numbers its own documents lack.
        """
        found = []
        for part in self.parts:
            shift = part.start - self.start
            found += [replace(c, start=c.start + shift, end=c.end + shift) for c in part._missing()]
        return found

    def _missing(self) -> list[Code]:
        answer, question = self.decoded, self.decoded.question
        asked = (question.prompt, question.instructions, *(asked for asked, _ in question.history))
        found = missing(self.text, [*asked, *texts(answer.passages)])
        missed = [set(each.missing) if each else set() for each in answer.attributions]
        return [code for code in found if all(code.text in each for each in missed)]

    @property
    def statistics(self) -> dict[str, Any]:
        """Return the answer's times, acceptance and bytes by name; None if not measured."""
        of_mode = entry_of(self.decoded.settings).statistics
        return statistics.statistics(AnswerCounts.of(self.decoded.records), of_mode)

    @property
    def ledger(self) -> dict[str, Any]:
        """Return what left the device: bytes and tokens by name, and bits of evidence by file."""
        left = statistics.ledger(AnswerCounts.of(self.decoded.records))
        bits: dict[str, float] = {}
        for part in self.parts:
            files = dict.fromkeys(passage.file for passage in part.decoded.passages)
            in_part = AnswerCounts.of(part.decoded.records).file_bits
            for name, each in zip(files, in_part, strict=False):
                bits[name] = round(bits.get(name, 0.0) + each, 2)
        del left["evidence_bits_of_files"]
        return {**left, "files": [{"file": name, "bits": each} for name, each in bits.items()]}

    def to_json(self) -> list[dict[str, Any]]:
        """Return the objects that `--json` prints: for each of several parts, then the whole."""
        return [each.to_object() for each in (*self.answered, self)]

    def to_object(self) -> dict[str, Any]:
        """Return the whole answer as one JSON object: text, settings, sources, costs and more."""
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
    """Return whether to list a source: relevance from 0.25, or a word shared with the question."""
    words = content_words(f"{source.name} {source.title} {source.sentence}")
    return source.relevance >= FLOOR or bool(words & content_words(question))


def code_json(code: Code) -> dict[str, Any]:
    """Return as JSON a number or code in an answer: its text, and its start and end index."""
    return {"text": code.text, "start_index": code.start, "end_index": code.end}
