"""The one thread that runs the model, next to the event loop (ARCHITECTURE)."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class ModelWorker:
    """Runs jobs one after another in the order of their arrival, off the loop.

    A failing job raises where it is awaited. The queue is as long as there are sessions, since
    each waits for its job before it hands in the next one.
    """

    def __init__(self, name: str = "model") -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    async def run(self, job: Callable[[], T]) -> T:
        """The result of `job()`, computed in the thread."""
        done: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((job, done))
        return await done

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, done = entry
            if done.cancelled():
                continue
            try:
                result = job()
            except BaseException as error:  # whatever it is, it belongs to who awaits the job
                self._loop.call_soon_threadsafe(_fail, done, error)
            else:
                self._loop.call_soon_threadsafe(_finish, done, result)


def _finish(done: "asyncio.Future[Any]", result: Any) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: "asyncio.Future[Any]", error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
