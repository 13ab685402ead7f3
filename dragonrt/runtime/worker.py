"""A thread that does one job after another, next to the event loop (ARCHITECTURE)."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class WorkerThread:
    """Runs jobs one after another in the order of their arrival, off the loop.

    The queue is short: each answer has at most the job it waits for.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
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

    def submit(self, job: Callable[[], None]) -> None:
        """Have `job` run in the thread; callable from any thread. It must not raise."""
        self._jobs.put(job)

    def post(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Have `callback` run on the loop; for jobs to hand over what they found."""
        self._loop.call_soon_threadsafe(callback, *arguments)

    async def run(self, job: Callable[[], T]) -> T:
        """The result of `job()`, computed in the thread; its exception is raised here."""
        done: asyncio.Future[T] = self._loop.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                result = job()
            except BaseException as error:  # whatever it is, it belongs to who awaits the job
                self.post(_fail, done, error)
            else:
                self.post(_finish, done, result)

        self.submit(work)
        return await done

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _finish(done: "asyncio.Future[Any]", result: Any) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: "asyncio.Future[Any]", error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
