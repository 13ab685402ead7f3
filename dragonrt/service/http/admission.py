"""The queue in front of the device."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from dragonrt.service.http.api_errors import ApiError

LONGEST_WAIT_S = 60.0
"""A request that waits longer is rejected."""
ENDING_S = 30
"""Seconds for answers under way when the service ends."""
FIRST_GUESS_S = 1.0
"""The expected duration of an answer before there was one."""
SMOOTHING = 0.2


class Admission:
    """Limits the answers at a time and the waiting requests, first come, first served."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self.running = 0
        self.waiting = 0
        self.closing = False
        self._at_once = at_once
        self._most_waiting = waiting
        self._turns = asyncio.Semaphore(at_once)
        self._answer_s = FIRST_GUESS_S
        self._drained = asyncio.Event()

    def close(self, *, at_once: bool = False) -> None:
        """Reject further requests; if `at_once`, `drained` does not wait for accepted ones."""
        self.closing = True
        if at_once or not (self.running or self.waiting):
            self._drained.set()

    async def drained(self) -> bool:
        """Wait until no request is left after `close`; return False if some are left in the end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_S):
                await self._drained.wait()
        return not (self.running or self.waiting)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place among the answers until the context ends.

        Raises ApiError: 429 if too many requests wait, 503 at shutdown or after the longest wait.
        """
        if self.closing:
            raise ApiError(503, "the service is ending", code="stopping", retry_after_s=10)
        if self._turns.locked() and self.waiting >= self._most_waiting:
            about = f"{self.running} answers are under way and {self.waiting} wait"
            raise self._full(429, "queue_full", about)
        self.waiting += 1
        try:
            async with asyncio.timeout(LONGEST_WAIT_S):
                await self._turns.acquire()
        except TimeoutError:
            about = f"no answer could begin within {LONGEST_WAIT_S:g} s"
            raise self._full(503, "overloaded", about) from None
        finally:
            self.waiting -= 1
        clock = asyncio.get_running_loop().time
        self.running, began_s = self.running + 1, clock()
        try:
            yield
        finally:
            self.running -= 1
            self._answer_s += SMOOTHING * (clock() - began_s - self._answer_s)
            self._turns.release()
            if self.closing:
                self.close()

    def _full(self, status: int, code: str, about: str) -> ApiError:
        free_s = min(LONGEST_WAIT_S, self._answer_s * (self.waiting + 1) / self._at_once)
        return ApiError(status, f"{about}: try again later", code=code, retry_after_s=free_s)
