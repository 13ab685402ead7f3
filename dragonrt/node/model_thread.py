"""Threads next to the event loop: JobThread runs jobs in order, ModelThread a model's forwards."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

from typing_extensions import override

from dragonrt.backends.backend import Backend, Preempted, Preemption, RowLogits
from dragonrt.backends.scheduler import ALONE, Batch, Client, Done, Request, Scheduler
from dragonrt.errors import DragonError

T = TypeVar("T")


class JobThread:
    """A thread that runs jobs in the order of their arrival, while its async context is entered."""

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
        """Queue `job` to run in this thread. Call from any thread; `job` must not raise."""
        self._jobs.put(job)

    def post(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Call `callback` with `arguments` on the event loop soon. Call this from any thread."""
        self._loop.call_soon_threadsafe(callback, *arguments)

    async def call(self, job: Callable[[], T]) -> T:
        """Run `job` in this thread; return its result, or raise its exception."""
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
    """Set a future's result or exception if it is still pending. Call on the event loop."""
    if done.done():
        return
    if isinstance(result, BaseException):
        done.set_exception(result)
    else:
        done.set_result(result)


Make = Callable[[Done[T], Preemption], Request]
"""Makes a request in the model's thread. May raise."""

_turns: WeakKeyDictionary[Backend, Lock] = WeakKeyDictionary()
"""A lock for each model: two threads in one at the same time corrupt its memory."""


class ModelThread(JobThread):
    """The thread of a model: runs forwards for all answers of a side and, between them, jobs.

    Jobs add requests to the `scheduler`, which decides which requests share the next forward.
    Two ModelThreads with the same `backend` never run at once. `postprocessing` is the thread for
    answers' work without a forward. `answers` counts open answers. `on_forward` gets a forward's
    batch size, in this thread. `on_busy` gets each change of `busy`, on the event loop.
    """

    def __init__(self, backend: Backend, postprocessing: JobThread) -> None:
        super().__init__("model")
        self.postprocessing = postprocessing
        self.scheduler = Scheduler(backend.info)
        self.answers = 0
        self.on_forward: Callable[[int], None] = lambda requests: None
        self.on_busy: Callable[[bool], None] = lambda busy: None
        self._backend = backend
        self._questions = 0  # that are being prepared
        self._clients: Counter[Client] = Counter()  # their open answers and questions
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._background: set[Preemption] = set()
        self._turn = _turns.setdefault(backend, Lock())

    # On the loop.

    @property
    def busy(self) -> bool:
        """Whether an answer is open, or a question is being prepared."""
        return bool(self.answers or self._questions)

    def count_open(self, answers: int, questions: int = 0, client: Client = ()) -> None:
        """Add to a client's counts of open answers and of questions that are being prepared.

        Pass -1 when one has ended. While a count is above 0, background requests wait.
        """
        self.answers += answers
        self._questions += questions
        # A new one each time: the model's thread may be reading the last.
        self._clients = self._clients + Counter({client: answers + questions})
        busy = self.busy
        if busy == self._quiet.is_set():
            (self._quiet.clear if busy else self._quiet.set)()
            self.on_busy(busy)
        for preemption in self._background if busy else ():
            preemption.request()

    @contextmanager
    def preparing(self, client: Client = ()) -> Iterator[None]:
        """Count a question as in preparation within the context, so that background work waits."""
        self.count_open(0, 1, client)
        try:
            yield
        finally:
            self.count_open(0, -1, client)

    async def read(self, make: Make[T], client: Client = ()) -> T:
        """Run the Request of `make` for `client`; return its result. Cancelling preempts it."""
        with self.preparing(client):
            return await self._read(make, Preemption(), client)

    async def read_in_background(self, make: Make[T]) -> T:
        """Run the Request of `make` while not `busy`; run it again later if a question stops it."""
        while True:
            while self.busy:
                await self._quiet.wait()
            self._background.add(preemption := Preemption())
            try:
                return await self._read(make, preemption)
            except Preempted:
                continue
            finally:
                self._background.remove(preemption)

    async def _read(self, make: Make[T], preemption: Preemption, client: Client = ()) -> T:
        done: asyncio.Future[T] = self._loop.create_future()
        self.submit(partial(self.begin, make, partial(self.post, settle, done), preemption, client))
        try:
            return await done
        finally:
            preemption.request()
            del done  # as in `call`

    # In the model's thread.

    def begin(
        self, make: Make[T], done: Done[T], preemption: Preemption, client: Client = ()
    ) -> None:
        """In this thread, queue Request `make(done, preemption)`; `done` gets a result or error."""
        try:
            self.scheduler.add(make(done, preemption), client)
        except Exception as error:  # raised to the caller that waits; its frames would keep the KV
            done(error.with_traceback(None))

    def run(self, batch: Batch) -> Sequence[Sequence[RowLogits] | None]:
        self.on_forward(len(batch.requests))
        return self._backend.forward(batch.feeds)

    @override
    def _work(self) -> None:
        while True:
            # Only the jobs already queued: later ones must not delay the forward.
            for _ in range(max(self._jobs.qsize(), not self.scheduler.requests)):
                job = self._jobs.get()
                if job is None:
                    return
                with self._turn:
                    job()
                del job  # free what it holds before the next job
            others = self.answers + bool(self._questions) > 1
            piece = self.scheduler.shared_tokens if others else ALONE
            with self._turn:
                batch = self.scheduler.schedule(piece, self._clients)
                if batch.requests:
                    self._step(batch)
            del batch

    def _step(self, batch: Batch) -> None:
        try:
            found = self.run(batch)
        except Exception as error:  # raised to all that share the forward
            self.scheduler.update(batch, error.with_traceback(None))
        else:
            self.scheduler.update(batch, found)
