"""A conversation with both sides: questions, their answers as text, and the history."""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dragonrt.modes.mode import Finish
from dragonrt.modes.question import Question, Turn
from dragonrt.modes.registry import entry_of, traits_of
from dragonrt.node.answers.client_session import Answer, ClientSession
from dragonrt.node.answers.driver import OnRecord
from dragonrt.node.answers.marking import Piece
from dragonrt.node.process.programs import Device
from dragonrt.privacy.preview import Preview, of_parts
from dragonrt.privacy.redaction import MARKER, redacted
from dragonrt.sampling.noise import Noise
from dragonrt.service.languages import check_language
from dragonrt.service.parts import JoinedText, parts_of
from dragonrt.service.reply import JoinedReply, Reply
from dragonrt.service.tasks import named_in, reads_whole, turns
from dragonrt.service.text import TextStream
from dragonrt.traces.events import Noticed, OnNotice, Record, TokenDecided

HISTORY = 16
"""Turns kept as history; a model with less room drops the oldest ones."""
SEED_BITS = 32
"""The largest fresh seed: short enough to be typed again."""

OnPiece = Callable[[str, TokenDecided], None]
"""Called with each piece of text and the decision that completed it.

No side has a share in a refusal.
"""
NEUTRAL = 0.5
"""The share of a refusal, and of words between the answers of two parts: they are nobody's."""


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
        on_notice: OnNotice = lambda notice: None,
        on_record: OnRecord = lambda record: None,
    ) -> Reply:
        """Return the answer to a question. Raises DragonError if there is none.

        `on_notice` gets lines for the user, `on_record` all events, each decision before its piece.
        """
        check_language(self.device.side.model, prompt)
        limit = self.question.max_tokens
        asked, notices = await self._turns(prompt)
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

        now_s = asyncio.get_running_loop().time()
        told = [Record(now_s, "device", 0, notice) for notice in notices]
        for record, notice in zip(told, notices, strict=True):
            on_notice(notice)
            on_record(record)

        def hear(notice: Noticed) -> None:
            # Each part would repeat that the cloud is away.
            if not any(notice in part.answer.notices for part in replies):
                on_notice(notice)

        self._stopped, finish, before = False, Finish.STOP, self.history
        for number, part in enumerate(asked):
            if by_chunk:
                self.history = before
            question = replace(part, seed=noise.seed_of(number), max_tokens=limit)
            reply = await self._answer(question, emit, hear, on_record)
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
        joined.answer.records.extend(told)
        if by_chunk:
            self.history = [*before, (prompt, joined.text)][-HISTORY:]
        if traits_of(self.device.settings).keeps_drafts:  # a client may put all parts into one turn
            parts = [(part.answer.question.prompt, part.text) for part in replies]
            disclosed = "; ".join(self.device.told.get(part) or "" for part in parts)
            self.device.told.remember((prompt, joined.text), disclosed)
        return joined

    async def foreseen(self, prompt: str) -> tuple[Preview, list[Question]]:
        """Return what may leave for a question, and its parts. Raises DragonError as `ask` does.

        Of the answers to earlier parts it does not know the bytes.
        """
        check_language(self.device.side.model, prompt)
        turns, _ = await self._turns(prompt)
        asked, history = list[Question](), list(self.history)
        for part in turns:
            asked.append(replace(self, history=history[-HISTORY:])._in_context(part))
            if part.chunk is None:
                history.append((part.prompt, ""))
        return of_parts([self.device.foreseen(each) for each in asked]), asked

    async def _turns(self, prompt: str) -> tuple[list[Question], list[Noticed]]:
        """Return the turns of an answer, each a question, and notices.

        Raises TaskError for a task that the model cannot do.
        """
        question, side = replace(self.question, prompt=prompt), self.device.side
        library, mixes = side.library, entry_of(self.device.settings).unread is None
        if question.parts != "on" or self.stops or question.top_logprobs is not None:
            return [question], []
        if reads_whole(prompt, side.model.name) and library is not None and mixes:

            def chunks() -> tuple[str, int]:
                index = library.retriever.index
                document = question.document or named_in(prompt, index.files())
                return document, len(index.store.chunks_of(document))

            document, count = await side.librarian.call(chunks)
            if count:
                return turns(question, document, count)
        return [replace(question, prompt=part) for part in parts_of(prompt)], []

    async def _answer(
        self,
        question: Question,
        on_piece: OnPiece,
        on_notice: OnNotice,
        on_record: OnRecord,
    ) -> Reply:
        """Return the answer to one part of a question, and make both a turn of the conversation."""
        model, strings = self.device.side.model, self._stop_strings
        question = self._in_context(question)
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
                on_notice(event)
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
        if traits_of(self.device.settings).keeps_drafts:
            self.device.told.remember(turn, self._shown_of(answer, strings))
        return reply

    @property
    def _stop_strings(self) -> tuple[str, ...]:
        return (*self.device.side.model.prompt.template.stops, *self.stops)

    def _in_context(self, question: Question) -> Question:
        """Return the question after the conversation so far."""
        return replace(
            question,
            history=tuple(self.history),
            shown=self._shown_before(),
            stop_tokens=self.device.side.model.with_stops(self._stop_strings),
        )

    def _shown_before(self) -> tuple[str, ...]:
        """Return what other sides may read of the history's answers.

        What was withheld stays withheld, at level `drafts`, too. A device that keeps its drafts
        withholds an answer of which it is not known what was disclosed.
        """
        keeps = traits_of(self.device.settings).keeps_drafts
        told = map(self.device.told.get, self.history)
        unknown = (MARKER.strip() if keeps else answer for _, answer in self.history)
        return tuple(a if a is not None else b for a, b in zip(told, unknown, strict=True))

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
