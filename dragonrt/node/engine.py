"""The thread of a model: one queue of forwards for all answers, next to the event loop.

Readings of several answers share forwards (`backends.sequence`). Answers join and leave between two
forwards, and a preemption removes one answer's part. Long questions are read in pieces, so that
other answers do not wait. Spare readings run when the queue is empty. Postprocessing runs between
two forwards, so that answers that shared one forward share the next one, too.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from dragonrt.backends.backend import Preempted, Preemption
from dragonrt.backends.reader import LateReader, Reader
from dragonrt.backends.sequence import PIECE, Batch, Reading
from dragonrt.modes.mode import Prediction, Work
from dragonrt.modes.prefix import extended
from dragonrt.node.backend_session import Done, ForwardResult
from dragonrt.node.worker import WorkerThread, settle

T = TypeVar("T")

ALONE = 256  # rows times tokens of a forward while only one answer is open


class Engine(WorkerThread):
    """Runs the readings of one model in its thread, between the jobs that add them.

    An answer has at most two readings in the queue. `answers` counts the open answers, `batches`
    the forwards by the number of readings that shared them.
    """

    def __init__(self, heads: WorkerThread) -> None:
        super().__init__("model")
        self.heads = heads
        self.answers = 0
        self.batches: Counter[int] = Counter()
        self._wanted = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._batch = Batch()
        self._preparing = 0
        # Spare readings in their order, and the preemptions of those under way.
        self._spare: list[tuple[Preemption, Reading[Any], Callable[[Any], None]]] = []
        self._spares_read: list[Preemption] = []

    def opened(self, answers: int, wanted: int = 0) -> None:
        """Count `answers` more open answers and `wanted` more questions. Call on the loop."""
        self.answers += answers
        self._wanted += wanted
        if self.answers or self._wanted:
            self._quiet.clear()
        else:
            self._quiet.set()

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """Preempt spare readings until the context ends. Call on the loop."""
        self.opened(0, 1)
        self.make_way()
        try:
            yield
        finally:
            self.opened(0, -1)

    @property
    def queued(self) -> int:
        """Return how many readings share the next forward."""
        return len(self._batch)

    def add(self, reading: Reading[T], done: Callable[[T | BaseException], None]) -> None:
        """Add a reading. Call in the model's thread, which also calls `done`."""
        self._batch.add(reading, done)

    def add_spare(
        self, reading: Reading[T], done: Callable[[T | BaseException], None], preemption: Preemption
    ) -> None:
        """Add a low-priority reading; others preempt it by its own `preemption`."""
        self._spare.append((preemption, reading, done))

    def make_way(self) -> None:
        """Preempt spare readings. Call from any thread."""
        for preemption in tuple(self._spares_read):
            preemption.request()

    def _read_spare(self) -> None:
        """Start spare readings if the queue is empty; preempted ones end at once."""
        idle = len(self._batch) == 0
        waiting, self._spare = self._spare, []
        for each in waiting:
            preemption, reading, done = each
            # In this order, so that a question that comes now is seen here, or preempts it.
            self._spares_read.append(preemption)
            if (idle and not self._jobs.qsize()) or preemption.requested:
                self.add(reading, partial(self._spare_read, preemption, done))
            else:
                self._spares_read.remove(preemption)
                self._spare.append(each)

    def _spare_read(self, preemption: Preemption, done: Callable[[Any], None], result: Any) -> None:
        self._spares_read.remove(preemption)
        done(result)

    async def read(self, reading: Callable[[], Reading[T]]) -> T:
        """Return the result of a reading, or raise its exception."""
        done: asyncio.Future[T] = self._loop.create_future()
        self.submit(partial(self._begin, reading, done))
        try:
            with self.wanted():  # after it, see `_read_spare`
                return await done
        finally:
            del done  # as in `run`

    async def read_idle(self, reading: Callable[[Preemption], Reading[T]]) -> T:
        """Read while no answer is open and none is `wanted`; restart after each."""
        while True:
            while self.answers or self._wanted:
                await self._quiet.wait()
            preemption = Preemption()
            done: asyncio.Future[T] = self._loop.create_future()
            end = partial(self.post, settle, done)
            self.submit(partial(self.add_spare, reading(preemption), end, preemption))
            try:
                return await done
            except Preempted:
                continue
            finally:
                preemption.request()
                del done

    def _begin(self, reading: Callable[[], Reading[T]], done: "asyncio.Future[T]") -> None:
        def end(result: T | BaseException) -> None:
            self._preparing -= 1
            self.post(settle, done, result)

        self._preparing += 1
        try:
            made = reading()
        except Exception as error:  # raised to the caller that awaits it
            end(error)
        else:
            self.add(made, end)

    def _work(self) -> None:
        while True:
            # Only the jobs already queued: later ones must not delay the forward.
            idle = len(self._batch) == 0 and not self._spare
            for _ in range(max(self._jobs.qsize(), idle)):
                job = self._jobs.get()
                if job is None:
                    return
                job()
                del job  # free what it holds before the next job
            self._read_spare()
            if readings := len(self._batch):
                self.batches[readings] += 1
            self._batch.step(self._piece)

    @property
    def _piece(self) -> int:
        """Return the least size of a piece of a long text: small if another answer is open."""
        others = self.answers if self._preparing else self.answers - 1
        return PIECE if others > 0 else ALONE


@dataclass(eq=False, slots=True)
class _Forward:
    """A Work under way; one started in advance is not `asked` for yet and has no `done`."""

    work: Work
    asked: Work | None = None
    done: Done | None = None
    preemption: Preemption = field(default_factory=Preemption)
    began_s: float = 0.0
    result: ForwardResult | None = None

    def fits(self, work: Work) -> bool:
        """Return whether its result is also that of `work`: they read the same prefixes."""
        mine, other = self.work.span, work.span
        if mine is None or other is None:
            return False
        return mine.first == other.first and mine.hashes[-1] == other.hashes[-1]


class ModelSession:
    """Implements BackendSession on a real model.

    The engine starts the next Work while the loop still handles the result, so that forwards do not
    wait for the loop.
    """

    def __init__(self, engine: Engine, reader: Reader | LateReader) -> None:
        self._engine = engine
        self._reader: Reader | LateReader | None = reader
        self._clock = asyncio.get_running_loop().time
        self._current: _Forward | None = None
        self._next: _Forward | None = None
        self._closed = False
        engine.opened(1)
        # Only the model's thread uses this: the forward that reads now, one at a time.
        self._reading: _Forward | None = None
        self._waiting: deque[_Forward] = deque()

    def start(self, work: Work, done: Done) -> None:
        asked = _Forward(work, work, done)
        if work.span is None:
            self._engine.heads.submit(lambda: self._conclude(asked, [], 0.0))
            return
        begun, self._next = self._next, None
        if begun is not None and begun.fits(work):
            begun.asked, begun.done = work, done
            self._current = begun
            if begun.result is not None:
                self._engine.post(self._deliver, begun)
            return
        if begun is not None:
            begun.preemption.request()
        self._current = asked
        self._submit(asked)

    def preempt(self) -> None:
        for forward in (self._current, self._next):
            if forward is not None:
                forward.preemption.request()

    def close(self) -> None:
        self.preempt()
        self._engine.opened(-(not self._closed))
        self._closed = True
        self._current = self._next = self._reader = None

    # In the threads of the model and of postprocessing.

    def _submit(self, forward: _Forward) -> None:
        self._engine.submit(lambda: self._queue(forward))
        self._engine.make_way()

    def _queue(self, forward: _Forward) -> None:
        """Start reading now or after the forward before. Call in the model's thread."""
        self._waiting.append(forward)
        if self._reading is None:
            self._read_next()

    def _read_next(self) -> None:
        forward = self._reading = self._waiting.popleft()
        forward.began_s = self._clock()
        work, span, reader = forward.work, forward.work.span, self._reader
        if reader is None:
            return
        if span is None:
            raise ValueError("there is nothing to read")
        tokens, hashes = [*span.tokens, *work.guess], extended(span.hashes, work.guess)
        reading = reader.reading(tokens, hashes, span.first, forward.preemption)
        self._engine.add(reading, partial(self._was_read, forward))

    def _was_read(
        self, forward: _Forward, predictions: Sequence[Prediction] | BaseException
    ) -> None:
        seconds = self._clock() - forward.began_s
        self._reading = None
        if isinstance(predictions, BaseException):
            result = _failed(forward.work, seconds, predictions)
            self._engine.post(self._finished, forward, result, None)
        else:
            self._conclude(forward, predictions, seconds)
        if self._waiting:
            self._read_next()

    def _conclude(
        self, forward: _Forward, predictions: Sequence[Prediction], seconds: float
    ) -> None:
        """Postprocess the predictions, and start the forward that follows."""
        work, following = forward.work, None
        try:
            result = ForwardResult(work, seconds, work.head(predictions))
            if forward.asked is not None and work.following is not None:
                then = work.following(result.value)
                following = _Forward(then) if then is not None else None
        except Exception as error:  # passed to the caller of `start`
            result = ForwardResult(work, seconds, error=error)
        self._engine.post(self._finished, forward, result, following)
        if following is not None:
            self._submit(following)

    # On the loop, in the order in which the work ended.

    def _finished(
        self, forward: _Forward, result: ForwardResult, following: _Forward | None
    ) -> None:
        forward.result = result
        if following is not None and self._closed:
            following.preemption.request()
        elif following is not None:
            self._next = following
        self._deliver(forward)

    def _deliver(self, forward: _Forward) -> None:
        result, asked, done = forward.result, forward.asked, forward.done
        if self._closed or result is None or asked is None or done is None:
            return
        if self._current is forward:
            self._current = None
        done(replace(result, work=asked))


def _failed(work: Work, seconds: float, error: BaseException) -> ForwardResult:
    if isinstance(error, Preempted):
        return ForwardResult(work, seconds, preempted=True)
    known = error if isinstance(error, Exception) else RuntimeError(str(error))
    return ForwardResult(work, seconds, error=known)
