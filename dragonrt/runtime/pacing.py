"""A cadence: one cell leaves a connection at every tick, whatever there is to say (SPEC 1.10).

From the question on, for a fixed budget of ticks, and for as many budgets as the answer takes: the
end of an answer shows, if at all, in whole budgets. What does not fit waits for the next tick.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from dragonrt.modes.settings import DragonSettings, Settings
from dragonrt.wire.connection import Connection

ENOUGH_BYTES = 16 * 1024
"""With fewer waiting for their ticks, more may be said."""


class Pacing:
    """The ticks of one connection; `write` puts bytes on its stream."""

    def __init__(self, connection: Connection, write: Callable[[bytes], None]) -> None:
        self._connection = connection
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._period_s, self._budget, self._left = 0.0, 0, 0
        self._next_s = 0.0
        self._over = asyncio.Event()
        self._over.set()
        self._low = asyncio.Event()
        self._said: deque[tuple[int, float]] = deque()  # up to which byte of all, and when
        self._passed = 0
        self.held_s, self.held = 0.0, 0
        """Seconds that messages waited for their ticks, and how many messages."""

    def shape(self, settings: Settings) -> None:
        """Let the connection look as a question's settings want, from now on."""
        if not isinstance(settings, DragonSettings):
            return
        if settings.pads:
            self._connection.pad()
        if settings.cadence is not None:
            self._begin(settings.cadence_s, settings.cadence_ticks)

    def _begin(self, period_s: float, ticks: int) -> None:
        self._period_s, self._budget, self._left = period_s, ticks, max(self._left, ticks)
        if self._timer is None:
            self._connection.pace()
            self._over.clear()
            self._next_s = self._loop.time() + period_s
            self._timer = self._loop.call_at(self._next_s, self._tick)

    def said(self) -> None:
        """A message has joined what waits for its ticks, if there are any."""
        if self._timer is not None:
            self._said.append((self._passed + self._connection.waiting, self._loop.time()))

    def _tick(self) -> None:
        connection, before = self._connection, self._connection.waiting
        self._write(connection.next_cell())
        self._passed += before - connection.waiting
        while self._said and self._said[0][0] <= self._passed:
            self.held_s += self._loop.time() - self._said.popleft()[1]
            self.held += 1
        if connection.waiting < ENOUGH_BYTES:
            self._low.set()
        self._left -= 1
        if self._left <= 0:
            if not connection.waiting and not connection.sessions:
                self.stop()
                return
            self._left = self._budget
        self._next_s += self._period_s
        self._timer = self._loop.call_at(self._next_s, self._tick)

    async def drained(self) -> None:
        """Until little waits for its tick."""
        if self._connection.waiting >= ENOUGH_BYTES:
            self._low.clear()
            await self._low.wait()

    async def wait_over(self) -> None:
        """Until the budget is used up."""
        await self._over.wait()

    def stop(self) -> None:
        """No more ticks: the budget is used up, or the connection is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._said.clear()
        self._connection.unpace()
        self._over.set()
        self._low.set()
