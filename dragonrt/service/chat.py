"""Chat and Stream: ask a device, read its answers as they are decided, and keep the history."""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from dataclasses import replace
from typing import Any, Self, TypeAlias
from weakref import WeakSet

from dragonrt.errors import DragonError
from dragonrt.modes import entry_of
from dragonrt.modes.mode import Finish
from dragonrt.modes.question import Question, Turn
from dragonrt.node.answers import client_session
from dragonrt.node.answers.citing import DecidedText, is_refusal
from dragonrt.node.connections.connector import NotConnectedError
from dragonrt.node.process.local_side import LongQuestionError
from dragonrt.node.process.programs import Device
from dragonrt.privacy.disclosure import MARKER, redacted
from dragonrt.sampling.noise import Noise
from dragonrt.service.answer import Answer, Piece
from dragonrt.service.prompts import (
    OtherLanguageError,
    TaskError,
    bridge_of,
    check_language,
    named_in,
    parts_of,
    reads_whole,
    small_talk,
    turns,
)
from dragonrt.service.text import JoinedText, TextStream
from dragonrt.traces.events import Noticed, Record, TokenDecided, WentAlone

HISTORY = 16  # turns kept as history; a model with less room drops the oldest ones
SEED_BITS = 32  # of a fresh seed: short enough to be typed again
NEUTRAL = 0.5
"""The share of a refusal, and of words between the answers of two parts: they are nobody's."""

News: TypeAlias = Piece | Noticed | Answer | Record
"""News of an answer: a piece of its text, a notice for the user (each once), the complete
answer to a part, or an event of the trace; the decision of a piece comes before it."""
OnNews = Callable[[News], None]

CODES: dict[type[DragonError], str] = {
    LongQuestionError: "context_length_exceeded",
    NotConnectedError: "not_connected",
    OtherLanguageError: "unsupported_language",
    TaskError: "unsupported_task",
}


def code_of(error: DragonError) -> str:
    """Return an error's code for programs, such as "not_connected"; "answer_failed" by default."""
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), "answer_failed")


class Stream:
    """An answer under way: iterate over its pieces, or await it for the Answer.

    An answer that nobody reads continues until it is complete, ended or cancelled.
    """

    def __init__(self, chat: "Chat", question: str, seed: int | None, *, records: bool) -> None:
        self._chat = chat
        self._kinds = Piece | Record if records else Piece
        self._unread: deque[Piece | Record] = deque()  # no longer than the answer
        self._came = asyncio.Event()
        asked = chat.ask(question, seed=seed, on_news=self._hear)
        self._task = asyncio.create_task(asked, name="answer")
        self._task.add_done_callback(lambda task: self._came.set())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        while await self._goes_on():
            if isinstance(each := self._unread.popleft(), Piece):
                return each
        raise StopAsyncIteration

    def __await__(self) -> Generator[Any, None, Answer]:
        return self._task.__await__()

    async def news(self) -> AsyncIterator[list[Piece | Record]]:
        """Yield lists of the pieces since the last list, and of the trace records if requested.

        Raises the exception that ended the answer, if it failed.
        """
        while await self._goes_on():
            news = [*self._unread]
            self._unread.clear()
            yield news

    def when_ended(self, act: Callable[[Answer | None], None]) -> None:
        """Call `act` when the answer ends: with the Answer, or None if it failed or was aborted."""

        def ended(task: "asyncio.Task[Answer]") -> None:
            failed = task.cancelled() or task.exception() is not None
            act(None if failed else task.result())

        self._task.add_done_callback(ended)

    async def end(self) -> None:
        """Stop generating, keep the decided tokens as a turn of the chat, and wait for the end."""
        if not self._task.done():
            await asyncio.sleep(0)  # a task that has not begun has nothing to stop
            self._chat.stop(self._task)
        await asyncio.gather(self._task, return_exceptions=True)

    async def cancel(self) -> None:
        """Abort the answer; its unfinished part becomes no turn. Wait until it has ended."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _hear(self, news: News) -> None:
        if isinstance(news, self._kinds):
            self._unread.append(news)
            self._came.set()

    async def _goes_on(self) -> bool:
        """Wait for news; return False after the last. Raises what ended the answer."""
        if not self._unread and not self._task.done():
            self._came.clear()
            await self._came.wait()
        if self._unread:
            return True
        await self._task
        return False


class Chat:
    """A conversation on a device: each question is answered with the earlier turns as context.

    `question` has the settings of all answers, `stops` are texts that end an answer. Each answer
    draws a new seed if `seed` is None. Concurrent questions are answered one by one. A question is
    cut into parts, each a turn, unless there are `stops` or probabilities are requested. A bridge,
    a question that depends on another question in it, is asked as two questions in one turn. Small
    talk, such as "hello", gets a fixed reply without a model, and does not enter the history.
    """

    def __init__(
        self,
        device: Device,
        question: Question,
        seed: int | None = None,
        stops: Iterable[str] = (),
        history: Iterable[Turn] = (),
    ) -> None:
        self.device, self.question, self.seed = device, question, seed
        self.stops, reader = tuple(stops), device.side.model.name
        self.history = [turn for turn in history if not small_talk(turn[0], reader)]
        self._turn = asyncio.Lock()
        self._streams: set[Stream] = set()
        self._session: client_session.ClientSession | None = None
        self._stopped = False
        self._answering: asyncio.Task[Any] | None = None
        self._unwanted = WeakSet[asyncio.Task[Any]]()

    async def ask(
        self, question: str, *, seed: int | None = None, on_news: OnNews = lambda news: None
    ) -> Answer:
        """Answer a question; `on_news` gets each piece, notice and trace record as it comes.

        If `seed` is None, the chat's seed is used, if any, or a new one. Raises DragonError.
        """
        async with self._turn:
            self._answering = asyncio.current_task()
            self._stopped = self._answering in self._unwanted
            return await self._joined(question, self.seed if seed is None else seed, on_news)

    def stream(self, question: str, *, seed: int | None = None, records: bool = False) -> Stream:
        """Start `ask` in a task; return its Stream, which has trace records, too, if `records`."""
        self._streams.add(stream := Stream(self, question, seed, records=records))
        stream.when_ended(lambda answer: self._streams.discard(stream))
        return stream

    def stop(self, answering: asyncio.Task[Answer] | None = None) -> None:
        """Stop the running answer, keep its decided tokens, and do not wait until it has ended.

        If `answering` is a task that still waits for its turn, its answer is stopped at its start.
        """
        if answering is not None and answering is not self._answering:
            self._unwanted.add(answering)
            return
        self._stopped = True  # between two parts, too
        if self._session is not None:
            self._session.stop()

    async def close(self) -> None:
        """Cancel all streams of this chat, and wait until their answers have ended."""
        await asyncio.gather(*(each.cancel() for each in self._streams))

    async def _reply(self, prompt: str, on_news: OnNews) -> Answer:
        """Return the reply to small talk: nothing is read for it, and nothing sent."""
        side, names = self.device.side, list[str]()
        if (library := side.library) is not None:
            names = await side.librarian.call(lambda: sorted(library.retriever.index.files()))
        question, alone = replace(self.question, prompt=prompt), WentAlone(0)
        records = [Record(asyncio.get_running_loop().time(), "device", 0, alone)]
        decoded = client_session.Answer(
            question=question, settings=self.device.settings, records=records, finish=Finish.STOP
        )
        answer = Answer(small_talk(prompt, side.model.name, names), decoded)
        for news in (Piece(answer.text, NEUTRAL), answer):
            on_news(news)
        return answer

    @property
    def _cuts(self) -> bool:
        """Whether a question may be asked in more than one."""
        question = self.question
        return question.parts == "on" and not self.stops and question.top_logprobs is None

    async def _turns(self, prompt: str) -> tuple[list[Question], list[Noticed]]:
        """Return an answer's turns, each a question, and notices. Raises TaskError."""
        question, side = replace(self.question, prompt=prompt), self.device.side
        library, mixes = side.library, entry_of(self.device.settings).unread is None
        if not self._cuts:
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

    async def _joined(self, prompt: str, seed: int | None, on_news: OnNews) -> Answer:
        if small_talk(prompt, self.device.side.model.name):
            return await self._reply(prompt, on_news)
        check_language(self.device.side.model, prompt)
        limit = self.question.max_tokens
        asked, notices = await self._turns(prompt)  # it waits for the library, and may be stopped
        noise = Noise(seed if seed is not None else secrets.randbits(SEED_BITS))
        by_chunk = asked[0].chunk is not None
        labels = ["" if by_chunk else each.prompt for each in asked]
        # A bridge's second question has the words of the first answer: none may be withheld.
        cuts = self._cuts and not (by_chunk or self.device.settings.redacts)
        bridge = bridge_of(prompt) if cuts and len(asked) == 1 else None
        if bridge is not None:
            labels, asked = ["", prompt], [replace(asked[0], prompt=bridge[0])]
        apart = by_chunk or bridge is not None
        text = JoinedText(labels, refusal := self.device.side.model.prompt.template.refusal)
        parts: list[Answer] = []

        def hear(news: Piece | Record) -> None:
            if isinstance(news, Piece):
                lead, words = text.push(news.text)
                shown = Piece(lead, NEUTRAL), replace(news, text=words)
                for each in filter(lambda piece: piece.text, shown):
                    on_news(each)
                return
            on_news(news)
            notice = news.event
            # Each part would repeat that the cloud is away.
            if isinstance(notice, Noticed) and not any(notice in part.notices for part in parts):
                on_news(notice)

        now_s = asyncio.get_running_loop().time()
        told = [Record(now_s, "device", 0, notice) for notice in notices]
        for record in told:
            hear(record)
        finish, before = Finish.STOP, self.history
        for number, part in enumerate(asked):
            if apart:
                self.history = before
            question = replace(part, seed=noise.seed_of(number), max_tokens=limit)
            answer = await self._answer(question, hear)
            if bridge is not None and number == 0:
                refused = is_refusal(answer.text, refusal)
                after = prompt if refused else bridge[1](answer.text)
                asked.append(replace(part, prompt=after))
            parts.append(answer := replace(answer, place=(number + 1, len(labels))))
            on_news(answer)
            text.next()
            limit, finish = limit - len(answer.decoded.tokens), answer.decoded.finish
            if self._stopped or limit < 1 or finish is not Finish.STOP:
                break
        if len(asked) == 1:
            return parts[0]
        if rest := text.end():
            on_news(Piece(rest, NEUTRAL))
        if len(parts) < len(asked) and finish is Finish.STOP:
            finish = Finish.CANCELLED if self._stopped else Finish.LENGTH
        joined = Answer.joined(prompt, text, parts, finish)
        joined.decoded.records.extend(told)
        if apart:
            self.history = [*before, (prompt, joined.text)][-HISTORY:]
        if self.device.settings.keeps_drafts:  # a client may put all parts into one turn
            each = [(part.decoded.question.prompt, part.text) for part in parts]
            disclosed = "; ".join(self.device.disclosed.get(turn) or "" for turn in each)
            self.device.disclosed.remember((prompt, joined.text), disclosed)
        return joined

    async def _answer(self, question: Question, hear: Callable[[Piece | Record], None]) -> Answer:
        """Return the answer to one part of a question, and make both a turn of the chat."""
        model, strings = self.device.side.model, self._stop_strings
        question = self._in_context(question, self.history)
        stream = TextStream(model.decode, strings)
        pieces: list[DecidedText] = []
        refusal = model.prompt.template.refusal

        def text() -> str:
            return "".join(piece for piece, _ in pieces)

        def emit(piece: str, decision: TokenDecided) -> None:
            piece = piece if pieces else piece.lstrip()
            if piece:
                pieces.append((piece, decision))
                refused = refusal.strip().startswith(text().rstrip())
                hear(Piece(piece, NEUTRAL if refused else decision.share))

        def handle(record: Record) -> None:
            hear(record)
            event = record.event
            if not isinstance(event, TokenDecided) or stream.stopped:
                return
            if event.token not in question.stop_tokens:
                emit(stream.push(event.token), event)
                if stream.stopped:
                    session.stop(Finish.STOP)

        session = self._session = self.device.asking(question, handle)
        if self._stopped:
            session.stop()
        try:
            decoded = await session.ask()
        finally:
            self._session = None
        if decoded.decisions and (rest := stream.finish()):
            emit(rest, decoded.decisions[-1][1])
        answer = Answer(text().rstrip(), decoded, refusal, tuple(pieces))
        turn = question.prompt, answer.text
        self.history = [*self.history, turn][-HISTORY:]
        if self.device.settings.keeps_drafts:
            self.device.disclosed.remember(turn, self._shown_of(decoded, strings))
        return answer

    @property
    def _stop_strings(self) -> tuple[str, ...]:
        return (*self.device.side.model.prompt.template.stops, *self.stops)

    def _in_context(self, question: Question, history: list[Turn]) -> Question:
        return replace(
            question,
            history=tuple(history),
            shown=self._shown_before(history),
            stop_tokens=self.device.side.model.with_stops(self._stop_strings),
        )

    def _shown_before(self, history: list[Turn]) -> tuple[str, ...]:
        """Return the history's answers for other sides, less what was withheld or has no record."""
        keeps = self.device.settings.keeps_drafts
        told = map(self.device.disclosed.get, history)
        unknown = (MARKER.strip() if keeps else answer for _, answer in history)
        return tuple(a if a is not None else b for a, b in zip(told, unknown, strict=True))

    def _shown_of(self, answer: client_session.Answer, stops: tuple[str, ...]) -> str:
        """Return the disclosed text of an answer, with marks for withheld tokens."""
        model, ends = self.device.side.model, answer.question.stop_tokens
        kept = [(e.token, e.withheld) for _, e in answer.decisions if e.token not in ends]
        stream = TextStream(model.decode, stops)
        pieces = [stream.push(token) for token in redacted(kept, model.encode(MARKER))]
        return ("".join(pieces) + stream.finish()).strip()
