"""Run the forwards of one answer: the interface, and its implementation on a real model."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.backends.agreement import NONE, Agreement
from dragonrt.backends.backend import Preempted, Preemption
from dragonrt.backends.mixture import Mixture
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.backends.scheduler import Client
from dragonrt.modes.mode import Prepared, Span, Work
from dragonrt.modes.prefix import extended
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Host
from dragonrt.node.answers.citing import Passage
from dragonrt.node.model_thread import ModelThread
from dragonrt.traces.file import Recorder


@dataclass(frozen=True, slots=True)
class ForwardResult:
    """The result of `work`, a forward and its postprocessing: `value`, `error` or `preempted`."""

    work: Work
    seconds: float
    value: Any = None
    error: Exception | None = None
    preempted: bool = False


OnResult = Callable[[ForwardResult], None]


class BackendSession(Protocol):
    """The interface by which an answer runs forwards on a model that has read its prompt."""

    def start(self, work: Work, done: OnResult) -> None:
        """Start `work`; later `done` gets the result on the event loop. One forward at a time."""

    def preempt(self) -> None:
        """Stop the running forward, if any, as soon as possible; `done` is still called."""

    def close(self) -> None:
        """End the session; `done` is not called any more, not even for running work."""


VALUE_PROBABILITY = 0.2
"""The probability from which on documents hold a value of their own."""


async def no_values(text: Sequence[int]) -> tuple[str, ...]:
    """Return () for any answer: `PrefillResult.other_values` of a side that checks no numbers."""
    return ()


@dataclass(frozen=True, slots=True)
class PrefillResult:
    """What `Prefiller.prepare` returns: a session for forwards, the passages, and seconds spent.

    `passages_hash` is a hash of passages and relevances. For an answer's tokens, `other_values`
    returns each number that all documents contradict, followed by the documents' own number.
    """

    context: BackendSession
    prepared: Prepared
    passages: tuple[Passage, ...]
    prompt_tokens: int
    load_s: float
    prefill_s: float
    passages_hash: str = "none"
    decode: Callable[[Sequence[int]], str] = lambda tokens: ""
    other_values: Callable[[Sequence[int]], Awaitable[tuple[str, ...]]] = no_values


class Prefiller(Host, Protocol):
    """The interface to a side that retrieves and reads documents for an answer; see LocalSide."""

    @property
    def recorder(self) -> Recorder:
        """Return the recorder that gets all trace events of this side."""

    @property
    def share_sources(self) -> bool:
        """Whether this side sends names and sentences of an answer's sources to the other side."""

    async def prepare(
        self, question: Question, *, verifies: bool, late: bool = False, client: Client = ()
    ) -> PrefillResult:
        """Retrieve documents for a question, and prefill the model with documents and question.

        If `verifies`, one later forward may read several drafts, even if that rounds otherwise.
        If `late`, the first forward reads the prompt. Each `client` has a fair share of forwards.
        """


LONGEST_VALUE = 24


@dataclass(eq=False, slots=True)
class _Forward:
    """A Work under way; one begun in advance is not `asked` for yet and has no `done`."""

    work: Work
    asked: Work | None = None
    done: OnResult | None = None
    preemption: Preemption = field(default_factory=Preemption)
    began_s: float = 0.0
    result: ForwardResult | None = None

    def fits(self, work: Work) -> bool:
        """Return whether its result is also that of `work`: they read the same prefixes."""
        mine, other = self.work.span, work.span
        if mine is None or other is None:
            return False
        return mine.first == other.first and mine.hashes[-1] == other.hashes[-1]


class ModelSession(BackendSession):
    """A BackendSession on a real model, for one answer; its forwards run on `thread`.

    The model's thread postprocesses a result and may begin the next forward before the event loop
    handles that result. So answers that were batched in a forward stay in step for the next one.
    """

    def __init__(
        self, thread: ModelThread, cache: PrefixCache, start: int = 0, client: Client = ()
    ) -> None:
        """`start` is the hash of the empty text. The answer is for `client`."""
        self._start, self._client = start, client
        self._thread = thread
        self._cache: PrefixCache | None = cache
        self._clock = asyncio.get_running_loop().time
        self._current: _Forward | None = None
        self._next: _Forward | None = None
        self._closed = False
        thread.count_open(1, client=client)
        # Only the model's thread uses this. The first one reads, as a cache has one request.
        self._queue: deque[_Forward] = deque()

    @override
    def start(self, work: Work, done: OnResult) -> None:
        asked = _Forward(work, work, done)
        if work.span is None:
            self._thread.postprocessing.submit(partial(self._conclude, asked, [], 0.0))
            return
        begun, self._next = self._next, None
        if begun is not None and begun.fits(work):
            begun.asked, begun.done = work, done
            self._current = begun
            if begun.result is not None:
                self._thread.post(self._deliver, begun)
            return
        if begun is not None:
            begun.preemption.request()
        self._current = asked
        self._thread.submit(partial(self._add, asked))

    @override
    def preempt(self) -> None:
        for forward in (self._current, self._next):
            if forward is not None:
                forward.preemption.request()

    async def other_values(self, text: Sequence[int], by: Agreement) -> tuple[str, ...]:
        """Return each number in an answer that every document finds unlikely, then a likelier one.

        `by` finds the numbers in the answer's tokens `text`. The model decodes the likelier number
        from all documents (SPEC 5). A pair is skipped if that has less probability than 0.2.
        """
        found: list[str] = []
        hashes = extended([self._start], text)
        for first, last in by.numbers(text):
            if self._cache is None or not self._cache.disagrees(hashes[last]):
                continue
            own, names, p = list(text[:first]), hashes[: first + 1], list[float]()
            while len(p) < LONGEST_VALUE and not (p and by.phase(own[first:]) == NONE):
                said = await self._after(Span(own.copy(), names.copy(), len(own)))
                own.append(int(said.argmax()))
                names, p = extended(names, own[-1:]), [*p, float(said.max())]
            place = next((end for begin, end in by.numbers(own) if begin == first), first)
            if place > first and prod(p[: place - first]) >= VALUE_PROBABILITY:
                found += by.text(text[first:last]), by.text(own[first:place])
        return tuple(found)

    async def _after(self, span: Span) -> NDArray[np.float32]:
        done: asyncio.Future[ForwardResult] = asyncio.get_running_loop().create_future()
        self.start(Work(lambda predictions: predictions[0].p, span), done.set_result)
        result = await done
        if result.error is not None:
            raise result.error
        found: NDArray[np.float32] = result.value
        return found

    @override
    def close(self) -> None:
        self.preempt()
        self._thread.count_open(-(not self._closed), client=self._client)
        self._closed = True
        self._current = self._next = self._cache = None

    # In the threads of the model and of postprocessing.

    def _add(self, forward: _Forward) -> None:
        self._queue.append(forward)
        if len(self._queue) == 1:
            self._read()

    def _read(self) -> None:
        forward, cache = self._queue[0], self._cache
        if cache is None:
            return
        forward.began_s = self._clock()
        work, span = forward.work, forward.work.span
        if span is None:
            raise ValueError("there is nothing to read")
        tokens, hashes = span.tokens, span.hashes
        if work.guess:
            tokens, hashes = [*tokens, *work.guess], extended(hashes, work.guess)
        make = partial(cache.request, tokens, hashes, span.first, hidden=span.hidden)
        done = partial(self._was_read, forward)
        self._thread.begin(make, done, forward.preemption, self._client)

    def _was_read(self, forward: _Forward, found: list[Mixture] | Exception) -> None:
        self._queue.popleft()
        self._conclude(forward, found, self._clock() - forward.began_s)
        if self._queue:
            self._read()

    def _conclude(
        self, forward: _Forward, found: Sequence[Mixture] | Exception, seconds: float
    ) -> None:
        """Postprocess the predictions, and begin the forward that follows."""
        work, following = forward.work, None
        try:
            if isinstance(found, Preempted):
                result = ForwardResult(work, seconds, preempted=True)
            elif isinstance(found, Exception):
                result = ForwardResult(work, seconds, error=found)
            else:
                result = ForwardResult(work, seconds, work.postprocess(found))
                if forward.asked is not None and work.following is not None:
                    then = work.following(result.value)
                    following = None if then is None else _Forward(then)
        except Exception as error:  # passed to the caller of `start`
            result = ForwardResult(work, seconds, error=error)
        self._thread.post(self._finished, forward, result, following)
        if following is not None:
            self._thread.submit(partial(self._add, following))

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
        done(result if asked is forward.work else replace(result, work=asked))
