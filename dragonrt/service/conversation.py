"""A conversation with both sides: questions, their answers as text, and the history."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Self

from dragonrt.modes.mode import Finish
from dragonrt.modes.question import Question, Turn
from dragonrt.modes.registry import entry_of
from dragonrt.node.answer import OnRecord
from dragonrt.node.citing import Code, cited, is_refusal, missing, named, texts
from dragonrt.node.client_session import Answer, ClientSession
from dragonrt.node.main import Device
from dragonrt.node.marking import Mark, Piece, marks
from dragonrt.privacy.redaction import MARKER, redacted
from dragonrt.sampling.noise import Noise
from dragonrt.service.parts import JoinedText, parts_of
from dragonrt.service.tasks import named_in, reads_whole, turns
from dragonrt.settings import traced
from dragonrt.side import Side
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import Noticed, Record, TokenDecided
from dragonrt.traces.statistics import ledger, statistics
from dragonrt.wire.messages import Source

HISTORY = 16
"""Turns kept as history; a model with less room drops the oldest ones."""
SEED_BITS = 32
"""The largest fresh seed: short enough to be typed again."""

REPLACEMENT = "\ufffd"
"""What a decoder shows for half of a character."""
CONTEXT = 8
"""Tokens decoded again before each new one, so that spaces match the whole text."""

OnPiece = Callable[[str, TokenDecided], None]
"""Called with each piece of text and the decision that completed it.

No side has a share in a refusal.
"""


class TextStream:
    """Turns a growing list of tokens into pieces of text, up to the first stop string.

    `stopped` is True once a stop string is complete; no part of it is ever returned.
    """

    def __init__(self, decode: Callable[[list[int]], str], stops: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stops = tuple(stop for stop in stops if stop)
        self._tokens: list[int] = []
        self._settled = 0
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """Return the text that `token` completes."""
        self._tokens.append(token)
        text = self._unsettled()
        if text is None or text.endswith(REPLACEMENT):
            return ""
        self._settled = len(self._tokens)
        return self._release(self._held + text)

    def finish(self) -> str:
        """Return the text held back, after the last token."""
        if self.stopped:
            return ""
        shown = self._release(self._held + (self._unsettled() or ""))
        held, self._held = self._held, ""
        self._settled = len(self._tokens)
        return shown + held

    def _unsettled(self) -> str | None:
        """Return the text since the last settled token; None if it changes returned text."""
        start = max(0, self._settled - CONTEXT)
        known = self._decode(self._tokens[start : self._settled])
        text = self._decode(self._tokens[start:])
        return text[len(known) :] if text.startswith(known) else None

    def _release(self, text: str) -> str:
        """Cut at the first complete stop string; hold back an end that may become one."""
        found = [
            (text.index(stop) + len(stop), text.index(stop)) for stop in self._stops if stop in text
        ]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)[1]]
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        ends = (text[-length:] for length in range(min(longest, len(text)), 0, -1))
        begun = (end for end in ends if any(stop.startswith(end) for stop in self._stops))
        self._held = next(begun, "")
        return text.removesuffix(self._held)


NEUTRAL = 0.5
"""The share of a refusal, and of words between the answers of two parts: they are nobody's."""


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
            "notices": answer.notices,
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


@dataclass(slots=True)
class Conversation:
    """Puts one question after another to a connected device, with the settings of `question`.

    If `seed` is None each answer draws a fresh one. `stops` are texts that end an answer. The parts
    of a question are turns of their own; with stops, or if tokens are ranked, it is asked whole.
    """

    device: Device
    question: Question
    seed: int | None = None
    stops: tuple[str, ...] = ()
    history: list[Turn] = field(default_factory=list)
    _session: ClientSession | None = None
    _stopped: bool = False

    async def ask(
        self,
        prompt: str,
        on_piece: OnPiece = lambda text, decision: None,
        on_notice: Callable[[str], None] = lambda text: None,
        on_record: OnRecord = lambda record: None,
    ) -> Reply:
        """Return the answer to a question. Raises DragonError if there is none.

        `on_notice` gets lines for the user, `on_record` all events, each decision before its piece.
        """
        whole, limit = self.question, self.question.max_tokens
        is_cut = whole.parts == "on" and not self.stops and whole.top_logprobs is None
        asked, bound = await self._turns(prompt, is_cut=is_cut)
        noise = Noise(self.seed if self.seed is not None else secrets.randbits(SEED_BITS))
        by_chunk = asked[0].chunk is not None
        labels = ["" if by_chunk else each.prompt for each in asked]
        text = JoinedText(labels, self.device.side.model.prompt.template.refusal)
        replies: list[Reply] = []

        def emit(piece: str, decision: TokenDecided) -> None:
            lead, words = text.push(piece)
            if lead:
                on_piece(lead, replace(decision, share=NEUTRAL))
            if words:
                on_piece(words, decision)

        def notice(line: str) -> None:
            # Each part would repeat that the cloud is away.
            if not any(line in part.answer.notices for part in replies):
                on_notice(line)

        told = [Record(asyncio.get_running_loop().time(), "device", 0, Noticed(bound))]
        if bound:
            on_notice(bound)
            on_record(*told)
        self._stopped, finish, before = False, Finish.STOP, self.history
        for number, part in enumerate(asked):
            if by_chunk:
                self.history = before
            question = replace(part, seed=noise.seed_of(number), max_tokens=limit)
            reply = await self._answer(question, emit, notice, on_record)
            replies.append(replace(reply, place=(number + 1, len(asked))))
            text.next()
            limit, finish = limit - len(reply.answer.tokens), reply.answer.finish
            if self._stopped or limit < 1 or finish is not Finish.STOP:
                break
        if len(asked) == 1:
            return replies[0]
        if rest := text.end():
            *_, (_, decision) = [each for part in replies for each in part.answer.decisions]
            on_piece(rest, replace(decision, share=NEUTRAL))
        if len(replies) < len(asked) and finish is Finish.STOP:
            finish = Finish.CANCELLED if self._stopped else Finish.LENGTH
        joined = JoinedReply.of(prompt, text, replies, finish)
        joined.answer.records.extend(told if bound else ())
        if by_chunk:
            self.history = [*before, (prompt, joined.text)][-HISTORY:]
        if self.device.settings.keeps_drafts:  # a client may put all parts into one turn
            parts = [(part.answer.question.prompt, part.text) for part in replies]
            shown = "; ".join(self.device.shown[part] for part in parts)
            self.device.remember((prompt, joined.text), shown)
        return joined

    async def _turns(self, prompt: str, *, is_cut: bool) -> tuple[list[Question], str]:
        """Return the turns of an answer, each a question, and a notice.

        Raises TaskError for a task that the model cannot do.
        """
        question, side = replace(self.question, prompt=prompt), self.device.side
        library, mixes = side.library, entry_of(self.device.settings).unread is None
        if not is_cut:
            return [question], ""
        if reads_whole(prompt, side.model.name) and library is not None and mixes:

            def chunks() -> tuple[str, int]:
                index = library.retriever.index
                document = question.document or named_in(prompt, index.files())
                return document, len(index.store.chunks_of(document))

            document, count = await side.librarian.call(chunks)
            if count:
                return turns(question, document, count)
        return [replace(question, prompt=part) for part in parts_of(prompt)], ""

    async def _answer(
        self,
        question: Question,
        on_piece: OnPiece,
        on_notice: Callable[[str], None],
        on_record: OnRecord,
    ) -> Reply:
        """Return the answer to one part of a question, and make both a turn of the conversation."""
        model = self.device.side.model
        strings = (*model.prompt.template.stops, *self.stops)
        question = replace(
            question,
            history=tuple(self.history),
            shown=self._shown_before(),
            stop_tokens=model.with_stops(strings),
        )
        stream = TextStream(model.decode, strings)
        pieces: list[Piece] = []
        refusal = model.prompt.template.refusal

        def text() -> str:
            return "".join(piece for piece, _ in pieces)

        def emit(piece: str, decision: TokenDecided) -> None:
            piece = piece if pieces else piece.lstrip()
            if piece:
                pieces.append((piece, decision))
                refused = refusal.strip().startswith(text().rstrip())
                on_piece(piece, replace(decision, share=NEUTRAL) if refused else decision)

        def handle(record: Record) -> None:
            on_record(record)
            event = record.event
            if isinstance(event, Noticed):
                on_notice(event.text)
            elif not isinstance(event, TokenDecided) or stream.stopped:
                return
            elif event.token not in question.stop_tokens:
                emit(stream.push(event.token), event)
                if stream.stopped:
                    session.stop(Finish.STOP)

        session = self._session = self.device.asking(question, handle)
        try:
            answer = await session.ask()
        finally:
            self._session = None
        if answer.decisions and (rest := stream.finish()):
            emit(rest, answer.decisions[-1][1])
        reply = Reply(text().rstrip(), answer, refusal, tuple(pieces))
        turn = question.prompt, reply.text
        self.history = [*self.history, turn][-HISTORY:]
        if self.device.settings.keeps_drafts:
            self.device.remember(turn, self._shown_of(answer, strings))
        return reply

    def _shown_before(self) -> tuple[str, ...]:
        """Return the disclosed texts of the history's answers, empty if all text is disclosed.

        If this device did not give an answer, or has forgotten it, it is disclosed whole at level
        `answer`, and not at `redacted`.
        """
        settings = self.device.settings
        if not settings.keeps_drafts:
            return ()
        return tuple(
            self.device.shown.get(turn, MARKER.strip() if settings.redacts else turn[1])
            for turn in self.history
        )

    def _shown_of(self, answer: Answer, stops: tuple[str, ...]) -> str:
        """Return the disclosed text of an answer, with marks for withheld tokens."""
        model, ends = self.device.side.model, answer.question.stop_tokens
        kept = [(e.token, e.withheld) for _, e in answer.decisions if e.token not in ends]
        stream = TextStream(model.decode, stops)
        pieces = [stream.push(token) for token in redacted(kept, model.encode(MARKER))]
        return ("".join(pieces) + stream.finish()).strip()

    def stop(self) -> None:
        """End the answer under way, if any, with the tokens decided so far."""
        self._stopped = True  # between two parts, too
        if self._session is not None:
            self._session.stop()
