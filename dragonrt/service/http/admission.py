"""Who is answered now, who waits, and who is sent away: the queue in front of the device."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragonrt.service.http.api_errors import ApiError

LONGEST_WAIT_S = 60.0
"""Whoever waits longer for the turn to come is sent away."""
FIRST_GUESS_S = 1.0
"""What an answer is taken to last before there was one."""
SMOOTHING = 0.2


class Admission:
    """At most so many answers at once and so many that wait, first come, first served."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self.running = 0
        self.waiting = 0
        self.closing = False
        self._at_once = at_once
        self._most_waiting = waiting
        self._turns = asyncio.Semaphore(at_once)
        self._answer_s = FIRST_GUESS_S

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place among the answers, for as long as the context lasts; ApiError if there is none.

        429 where too many wait, 503 when the service ends or the turn does not come.
        """
        await self._turn()
        clock = asyncio.get_running_loop().time
        self.running, began_s = self.running + 1, clock()
        try:
            yield
        finally:
            self.running -= 1
            self._answer_s += SMOOTHING * (clock() - began_s - self._answer_s)
            self._turns.release()

    async def _turn(self) -> None:
        if self.closing:
            raise ApiError(503, "the service is ending", code="stopping", retry_after_s=10)
        if self._turns.locked() and self.waiting >= self._most_waiting:
            raise ApiError(
                429,
                f"{self.running} answers are under way and {self.waiting} wait: try again later",
                code="queue_full",
                retry_after_s=self._wait_s,
            )
        self.waiting += 1
        try:
            async with asyncio.timeout(LONGEST_WAIT_S):
                await self._turns.acquire()
        except TimeoutError:
            raise ApiError(
                503,
                f"no answer could begin within {LONGEST_WAIT_S:g} s: try again later",
                code="overloaded",
                retry_after_s=self._wait_s,
            ) from None
        finally:
            self.waiting -= 1

    @property
    def _wait_s(self) -> float:
        """When a place should be free, by how long answers last."""
        return min(LONGEST_WAIT_S, self._answer_s * (self.waiting + 1) / self._at_once)
