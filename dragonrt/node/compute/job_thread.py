"""A thread that runs one job after another, next to the event loop."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Self, TypeVar

from dragonrt.errors import DragonError

T = TypeVar("T")


class JobThread:
    """Runs jobs in the order of their arrival, off the loop."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` in the thread. Call from any thread; `job` must not raise."""
        self._jobs.put(job)

    def post(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Run `callback` on the loop. Call from any thread."""
        self._loop.call_soon_threadsafe(callback, *arguments)

    async def call(self, job: Callable[[], T]) -> T:
        """Return the result of `job()`, run in the thread; raise its exception."""
        done: asyncio.Future[T] = self._loop.create_future()
        self.submit(partial(self._run, job, done))
        try:
            return await done
        finally:
            del done  # breaks a cycle: future, exception, this frame

    def _run(self, job: Callable[[], T], done: "asyncio.Future[T]") -> None:
        if done.cancelled():
            return
        try:
            result = job()
        except DragonError as error:
            self.post(settle, done, error.with_traceback(None))  # whose frames may hold much
        except BaseException as error:  # raised to the caller that awaits the job
            self.post(settle, done, error)
        else:
            self.post(settle, done, result)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # free what it holds before the next job


def settle(done: "asyncio.Future[T]", result: T | BaseException) -> None:
    """Resolve the future if it is still pending. Call on the event loop."""
    if done.done():
        return
    if isinstance(result, BaseException):
        done.set_exception(result)
    else:
        done.set_result(result)
