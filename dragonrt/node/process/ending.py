"""Ends a process on a signal: in order if that is quick, else at once."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

TERMINATED = 128 + signal.SIGTERM
"""The exit code of a process that SIGTERM ended before it was ready, or in disorder."""
LONGEST_END_S = 10.0  # longest time for a process to close
INTERRUPTED_AGAIN_S = 0.01  # after which the main thread is interrupted once more


def exit_on_sigterm() -> None:
    """Have SIGTERM end this process in order, by SystemExit; a second one ends it at once.

    A destructor loses what a signal's handler raises in it.
    The main thread is then interrupted until it raises that again.
    """
    lost: SimpleQueue[sys.UnraisableHookArgs] = SimpleQueue()
    raised_again: SimpleQueue[None] = SimpleQueue()
    ending = False
    pending: BaseException | None = None

    # In a container the kernel drops what process 1 does not handle.
    def end(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal ending
        if ending:
            os._exit(TERMINATED)
        ending = True
        _end_soon()
        raise SystemExit(TERMINATED)

    def raise_pending(number: int, frame: FrameType | None) -> None:
        nonlocal pending
        if pending is not None:
            raised, pending = pending, None
            raised_again.put(None)
            raise raised

    def interrupt_main() -> NoReturn:
        nonlocal pending
        main = threading.main_thread().ident
        assert main is not None
        while True:
            unraisable = lost.get()
            if isinstance(unraisable.exc_value, SystemExit | KeyboardInterrupt):
                pending = unraisable.exc_value
                # A signal just before the main thread's system call does not interrupt that.
                while pending is not None:
                    signal.pthread_kill(main, signal.SIGURG)
                    with suppress(Empty):
                        raised_again.get(timeout=INTERRUPTED_AGAIN_S)
            else:
                sys.__unraisablehook__(unraisable)

    signal.signal(signal.SIGTERM, end)
    if sys.platform != "win32":
        signal.signal(signal.SIGURG, raise_pending)
        sys.unraisablehook = lost.put  # of C: no handler runs, and raises, within it
        threading.Thread(target=interrupt_main, name="signals", daemon=True).start()


def on_signals(numbers: tuple[signal.Signals, ...], *steps: Callable[[], None]) -> None:
    """Call the next of `steps` on the running loop at each of these signals.

    After the last step the process has LONGEST_END_S to end; one more signal ends it at once.
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
    """Return what `main` returns; SIGTERM cancels it and raises SystemExit."""
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
