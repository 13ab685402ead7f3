"""End a process on a signal: cleanly if that is quick, else at once."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

TERMINATED = 128 + signal.SIGTERM
"""The exit code of a process that SIGTERM ended before it was ready, or in disorder."""
LONGEST_END_S = 10.0  # longest time for a process to close


def exit_on_sigterm() -> None:
    """Make SIGTERM end this process cleanly, by SystemExit; a second SIGTERM ends it at once."""

    # In a container the kernel drops what process 1 does not handle.
    def end(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))
        _end_soon()
        raise SystemExit(TERMINATED)

    def end_if_lost(unraisable: "sys.UnraisableHookArgs") -> None:
        if isinstance(unraisable.exc_value, SystemExit | KeyboardInterrupt):
            interrupted = isinstance(unraisable.exc_value, KeyboardInterrupt)
            os._exit(128 + signal.SIGINT if interrupted else TERMINATED)
        sys.__unraisablehook__(unraisable)

    signal.signal(signal.SIGTERM, end)
    sys.unraisablehook = end_if_lost


def on_signals(numbers: tuple[signal.Signals, ...], *steps: Callable[[], None]) -> None:
    """Call the next of `steps` on the running event loop each time one of these signals comes.

    10 s after the last step (LONGEST_END_S), or at one more signal, the process ends by force.
    """
    left = list(steps)

    def signalled() -> None:
        if not left:
            os._exit(TERMINATED)
        step = left.pop(0)
        if not left:
            _end_soon()
        step()

    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, signalled)


async def terminable(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` and return its result; SIGTERM cancels it, and this then raises SystemExit."""
    task, ended = asyncio.current_task(), asyncio.Event()
    assert task is not None

    def end() -> None:
        ended.set()
        task.cancel()

    with suppress(NotImplementedError, RuntimeError):  # Windows, or a thread without signals
        on_signals((signal.SIGTERM,), end)
    try:
        return await main
    except asyncio.CancelledError:
        if ended.is_set():
            raise SystemExit(TERMINATED) from None
        raise


def _end_soon() -> None:
    """End the process after LONGEST_END_S, even if work is under way."""
    limit = threading.Timer(LONGEST_END_S, os._exit, (TERMINATED,))
    limit.daemon = True
    limit.start()
