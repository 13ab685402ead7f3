"""Answers for a person: text, sources, marks, costs, and what left the device."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Self

from dragonrt.modes.mode import Finish
from dragonrt.modes.registry import entry_of
from dragonrt.node.answers.citing import Code, cited, is_refusal, missing, named, texts
from dragonrt.node.answers.client_session import Answer
from dragonrt.node.answers.marking import Mark, Piece, marks
from dragonrt.service.parts import JoinedText
from dragonrt.settings import traced
from dragonrt.side import Side
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.schema import own_fields
from dragonrt.traces.statistics import ledger, statistics
from dragonrt.wire.messages import Source


@dataclass(frozen=True)
class Reply:
    """An answer for a person; `refusal` is the model's refusal if no document has the answer.

    `pieces` are the text as it was generated. `place` is the part's number of so many, if it
    answers one part of a question.
    """

    text: str
    answer: Answer
    refusal: str = ""
    pieces: tuple[Piece, ...] = ()
    place: tuple[int, int] = (1, 1)

    @property
    def parts(self) -> Sequence[tuple[int, "Reply"]]:
        """Return the answer to each part of the question, and where in the text it begins."""
        return [(0, self)]

    @cached_property
    def sources(self) -> list[tuple[Side, Source]]:
        """The documents that the text rests on, with their side, the device's first.

        Empty if the answer is a refusal.
        """
        answer = self.answer
        if is_refusal(self.text, self.refusal):
            return []
        own = cited(answer.passages, answer.moved.files, self.text, answer.question.prompt)
        theirs = (each.sources for each in answer.attributions if each is not None)
        return named(own, dict.fromkeys(chain.from_iterable(theirs)), answer.moved.other)

    @cached_property
    def marks(self) -> list[Mark]:
        """The words of the text that one of the sources moved, in order."""
        return marks(self.pieces, self.answer.passages, self.answer.moved, self.sources)

    @cached_property
    def not_found(self) -> list[Code]:
        """The numbers and codes of the text that neither a document nor the user has.

        Empty if another side took part and does not report what its documents have.
        """
        answer, question = self.answer, self.answer.question
        asked = (question.prompt, question.instructions, *(asked for asked, _ in question.history))
        found = missing(self.text, [*asked, *texts(answer.passages)])
        missed = [set(each.missing) if each else set() for each in answer.attributions]
        return [code for code in found if all(code.text in each for each in missed)]

    def statistics(self) -> dict[str, Any]:
        """Return the numbers of this answer; None for those that were not measured."""
        of_mode = entry_of(self.answer.settings).statistics
        return statistics(AnswerCounts.of(self.answer.records), of_mode)

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        answer, entry = self.answer, entry_of(self.answer.settings)
        part, of = self.place
        return {
            "question": answer.question.prompt,
            "part": part,
            "of": of,
            "text": self.text,
            "tokens": answer.tokens,
            "finish": answer.finish.value,
            "mode": entry.name,
            "approximate": not entry.exact,
            **traced(answer.question),
            **traced(answer.settings),
            "sources": [cited_json(*each) for each in self.sources],
            "marks": [mark_json(each) for each in self.marks],
            "not_found": [code_json(each) for each in self.not_found],
            "notices": [own_fields(each) for each in answer.notices],
            "statistics": self.statistics(),
            "ledger": self.ledger(),
        }

    def ledger(self) -> dict[str, Any]:
        """Return what left the device for this answer, as far as can be observed (SPEC 1.10)."""
        left = ledger(AnswerCounts.of(self.answer.records))
        files = dict.fromkeys(passage.file for passage in self.answer.passages)
        bits = left.pop("evidence_bits_of_files")
        named = [{"file": name, "bits": each} for name, each in zip(files, bits, strict=False)]
        return {**left, "files": named}


@dataclass(frozen=True)
class JoinedReply(Reply):
    """The answers to a question's parts as one. Its costs, and what left the device, are sums."""

    answered: Sequence[tuple[int, Reply]] = ()

    @classmethod
    def of(cls, prompt: str, text: JoinedText, parts: Sequence[Reply], finish: Finish) -> Self:
        """Join the answers to the parts of a prompt."""
        first, answers = parts[0], [part.answer for part in parts]
        whole = replace(
            first.answer,
            question=replace(first.answer.question, prompt=prompt),
            records=[record for each in answers for record in each.records],
            finish=finish,
            bytes_sent=sum(each.bytes_sent for each in answers),
            bytes_received=sum(each.bytes_received for each in answers),
        )
        answered = tuple(zip(text.places, parts, strict=False))
        return cls(text.text, whole, first.refusal, answered=answered)

    @property
    def parts(self) -> Sequence[tuple[int, Reply]]:
        return self.answered

    @cached_property
    def sources(self) -> list[tuple[Side, Source]]:
        found = [source for _, part in self.answered for source in part.sources]
        return [*{(side, each.name, each.sentence): (side, each) for side, each in found}.values()]

    @cached_property
    def marks(self) -> list[Mark]:
        return [
            replace(mark, start=place + mark.start, end=place + mark.end)
            for place, part in self.answered
            for mark in part.marks
        ]

    @cached_property
    def not_found(self) -> list[Code]:
        return [
            Code(code.text, place + code.start, place + code.end)
            for place, part in self.answered
            for code in part.not_found
        ]

    def ledger(self) -> dict[str, Any]:
        bits: dict[str, float] = {}
        for each in [each for _, part in self.answered for each in part.ledger()["files"]]:
            bits[each["file"]] = round(bits.get(each["file"], 0.0) + each["bits"], 2)
        return {**super().ledger(), "files": [{"file": n, "bits": b} for n, b in bits.items()]}


def cited_json(side: Side, source: Source) -> dict[str, Any]:
    """Return the JSON object of a source, for `--json` and the APIs."""
    return {
        "side": side,
        "file": source.name,
        "title": source.title,
        "relevance": round(source.relevance, 4),
        "bits": round(source.bits, 2),
        "sentence": source.sentence,
    }


def mark_json(mark: Mark) -> dict[str, Any]:
    """Return the place of a mark in the text, in characters, and that of its chunk in the file."""
    where = {"start_index": mark.start, "end_index": mark.end, "side": mark.side}
    return {**where, "file": mark.source.name, "chunk_start": mark.place}


def code_json(code: Code) -> dict[str, Any]:
    """Return a number or code and its place, in characters, in the text."""
    return {"text": code.text, "start_index": code.start, "end_index": code.end}
