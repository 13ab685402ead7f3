"""An answer under way, for whoever reads it piece by piece, at whatever pace."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from dragonrt.service.conversation import Conversation, Reply
from dragonrt.traces.events import Record, TokenDecided


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """Text that is certain, and the decision that made it so."""

    text: str
    decision: TokenDecided


class ServedAnswer:
    """Asks when the context begins; when it ends the answer is stopped, if it is not over.

    What nobody has read yet is kept: at most an answer's tokens and what they cost. With `traced`
    its records come among the pieces. `on_over` hears of every end, with None if the answer failed.
    """

    def __init__(
        self,
        conversation: Conversation,
        prompt: str,
        *,
        on_over: Callable[[Reply | None], None],
        traced: bool = False,
    ) -> None:
        self.reply: Reply | None = None
        self._on_over = on_over
        self._conversation = conversation
        self._prompt = prompt
        self._traced = traced
        self._unread: list[AnswerPiece | Record] = []
        self._news = asyncio.Event()
        self._asking: asyncio.Task[Reply] | None = None

    async def __aenter__(self) -> Self:
        asking = self._conversation.ask(self._prompt, self._take_piece, on_record=self._take_record)
        self._asking = asyncio.create_task(asking, name="served answer")
        self._asking.add_done_callback(self._over)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asking = self._asking
        if asking is None:
            return
        if not asking.done():
            await asyncio.sleep(0)  # a task that has not begun has nothing to stop
            self._conversation.stop()
        await asyncio.gather(asking, return_exceptions=True)

    async def news(self) -> AsyncIterator[list[AnswerPiece | Record]]:
        """What came since the last time, until the answer is over; then `reply` has it whole.

        Raises DragonError if the answer fails.
        """
        asking = self._asking
        while asking is not None:
            await self._news.wait()
            self._news.clear()
            over = asking.done()
            unread, self._unread = self._unread, []
            if unread:
                yield unread
            if over:
                self.reply = asking.result()
                return

    def _over(self, asking: "asyncio.Task[Reply]") -> None:
        failed = asking.cancelled() or asking.exception() is not None
        self._on_over(None if failed else asking.result())
        self._news.set()

    def _take_piece(self, text: str, decision: TokenDecided) -> None:
        self._unread.append(AnswerPiece(text, decision))
        self._news.set()

    def _take_record(self, record: Record) -> None:
        if self._traced:
            self._unread.append(record)
            self._news.set()
