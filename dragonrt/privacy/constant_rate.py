"""A constant rate: one padded frame leaves a connection at every tick (SPEC 1.10).

Ticks begin with the question and continue for a fixed number of ticks, the budget, then for further
budgets until the answer ends. So an observer sees the end of an answer only to a whole budget.
Bytes that do not fit into a frame wait for the next tick.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from dragonrt.wire.connection import Connection

ENOUGH_BYTES = 16 * 1024  # fewer queued bytes than this allow further sends


class ConstantRate:
    """Sends one padded frame of a connection by `write` at each tick, and then awaits `drain`."""

    def __init__(
        self,
        connection: Connection,
        write: Callable[[bytes], None],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._write = write
        self._drain = drain
        self._loop = asyncio.get_running_loop()
        self._period_s, self._budget, self._left = 0.0, 0, 0
        self._wanted, self._over, self._low = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._over.set()
        self._queued: deque[tuple[int, float]] = deque()  # (end byte, time)
        self._passed = 0
        self._stopped = False
        self.waited_s, self.waits = 0.0, 0
        """Seconds that messages waited for their ticks, and how many messages."""

    def shape(self, pads: bool, cadence: tuple[float, int]) -> None:
        """Pad frames if `pads`; tick by `cadence`, (seconds or 0 for no ticks, least ticks)."""
        if pads:
            self._connection.pad()
        if cadence[0] and not self._stopped:
            self._period_s, self._budget = cadence
            self._left = max(self._left, self._budget)
            self._connection.pace()
            self._over.clear()
            self._wanted.set()

    def queued(self) -> None:
        """Note the time at which a message was queued, to measure how long it waits for a tick."""
        if self._wanted.is_set():
            self._queued.append((self._passed + self._connection.waiting, self._loop.time()))

    async def run(self) -> None:
        """Send a frame at each tick whenever `shape` has begun ticks; run until cancelled."""
        try:
            while True:
                await self._wanted.wait()
                await self._use_up()
                self._end()
        finally:
            self._stopped = True
            self._end()

    async def _use_up(self) -> None:
        """Tick until the budget is used up; start further budgets while data or sessions remain."""
        connection, due_s = self._connection, self._loop.time()
        while True:
            due_s += self._period_s
            await asyncio.sleep(due_s - self._loop.time())
            self._tick()
            await self._drain()  # a slow link delays ticks: an observer sees that anyway
            due_s = max(due_s, self._loop.time() - self._period_s)
            if self._left <= 0:
                if not connection.waiting and not connection.sessions:
                    return
                self._left = self._budget

    def _tick(self) -> None:
        connection, before = self._connection, self._connection.waiting
        self._write(connection.next_padded_frame())
        self._left -= 1
        self._passed += before - connection.waiting
        while self._queued and self._queued[0][0] <= self._passed:
            self.waited_s += self._loop.time() - self._queued.popleft()[1]
            self.waits += 1
        if connection.waiting < ENOUGH_BYTES:
            self._low.set()

    def _end(self) -> None:
        self._wanted.clear()
        self._queued.clear()
        self._connection.unpace()
        self._over.set()
        self._low.set()

    async def drained(self) -> None:
        """Wait until fewer than 16 KiB are queued for ticks; await before sending more."""
        if self._connection.waiting >= ENOUGH_BYTES:
            self._low.clear()
            await self._low.wait()

    async def wait_over(self) -> None:
        await self._over.wait()
