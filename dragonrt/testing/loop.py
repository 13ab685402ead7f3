"""An event loop whose clock is virtual: waiting costs nothing and every run is repeatable.

When nothing is ready, the clock jumps to the next timer. Without a timer, a DeadlockError reports
what each task waits for. Simulated models spend their decoding time on timers, not in threads.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from typing_extensions import override

from dragonrt.errors import DragonError

T = TypeVar("T")

CLEANINGS = 10
"""Interrupted ends of tasks after which the other tasks are left as they are."""


class DeadlockError(DragonError):
    """Every task waits and no timer is set; the message names the tasks and where they wait."""


class _TimeJump:
    """The selector of the loop: instead of waiting for `timeout` seconds it moves the clock."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise DeadlockError(_describe_waits(self._loop))
        self._loop.now += max(timeout, 0.0)
        return []


def _describe_waits(loop: asyncio.AbstractEventLoop) -> str:
    waits = []
    for task in asyncio.all_tasks(loop):
        frames = task.get_stack(limit=1)
        place = (
            f"{frames[0].f_code.co_qualname}:{frames[0].f_lineno}" if frames else "an unknown place"
        )
        waits.append(f"{task.get_name()} in {place}")
    return "dead-lock in virtual time, these tasks wait for ever: " + "; ".join(sorted(waits))


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio loop whose clock, in virtual seconds from 0, jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._selector = _TimeJump(self)
        self._clock_resolution = 1e-9
        self.unhandled: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.unhandled.append(context))

    @override
    def time(self) -> float:
        return self.now

    def _process_events(self, event_list: list[Any]) -> None:
        """There is no I/O, so there are no events."""

    def _write_to_self(self) -> None:
        """Nothing sleeps in a selector, so nothing has to be woken."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine `main` to its end in virtual time, and return its result.

    Raises DeadlockError when nothing can happen any more, and re-raises the first exception that
    no task handled. Tasks that `main` leaves behind are an error: every task has an owner.
    """
    loop = VirtualLoop()
    try:
        asyncio.set_event_loop(loop)
        result = loop.run_until_complete(main)
        left = asyncio.all_tasks(loop)
        if left:
            names = ", ".join(sorted(task.get_name() for task in left))
            raise DragonError(f"tasks left behind at the end of a simulation: {names}")
        for context in loop.unhandled:
            raise context.get("exception") or DragonError(str(context["message"]))
        return result
    finally:
        _end(loop)
        asyncio.set_event_loop(None)
        loop.close()


def _end(loop: VirtualLoop) -> None:
    """Cancel what is left, even where its tasks end with interrupts, which leave the loop."""
    for _ in range(CLEANINGS):
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        with suppress(Exception, KeyboardInterrupt):
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            return
