"""Where the model's work is done: one queue of forwards, one of heads, next to the event loop."""

import asyncio
from collections.abc import Callable

from dragonrt.language.preemption import Preempted, Preemption
from dragonrt.language.reader import Reader
from dragonrt.modes.line import extended
from dragonrt.modes.mode import Work
from dragonrt.runtime.preparing import Outcome
from dragonrt.runtime.worker import ModelWorker

Done = Callable[[Outcome], None]


class _Forward:
    """A forward over a Work's span and the head over what it gives.

    `asked` is the Work that the mode has asked for, with `done`; a forward that began because it
    was likely to be wanted next has neither yet.
    """

    def __init__(self, work: Work, asked: Work | None, done: Done | None) -> None:
        self.work = work
        self.asked = asked
        self.done = done
        self.preemption = Preemption()
        self.outcome: Outcome | None = None

    def fits(self, work: Work) -> bool:
        """Whether its outcome is that of `work`, too: it gives what follows the same prefixes."""
        mine, other = self.work.span, work.span
        if mine is None or other is None:
            return False
        return mine.first == other.first and mine.hashes[-1] == other.hashes[-1]


class ModelContext:
    """Implements Context on a real model.

    The model's thread goes on with what a Work says is wanted next while the loop still handles its
    outcome, so that no hand-over between the two stands between forwards. Heads without a span run
    in a thread of their own and wait for no forward.
    """

    def __init__(self, model: ModelWorker, heads: ModelWorker, reader: Reader) -> None:
        self._model = model
        self._heads = heads
        self._reader = reader
        self._clock = asyncio.get_running_loop().time
        self._current: _Forward | None = None
        self._next: _Forward | None = None
        self._closed = False

    def start(self, work: Work, done: Done) -> None:
        if work.span is None:
            self._heads.submit(lambda: self._compute(work, done))
            return
        forward, self._next = self._next, None
        if forward is not None and not forward.fits(work):
            forward.preemption.request()
            forward = None
        if forward is None:
            forward = _Forward(work, work, done)
            self._current = forward
            self._submit(forward)
            return
        forward.asked, forward.done = work, done
        self._current = forward
        if forward.outcome is not None:
            self._model.post(self._deliver, forward)

    def preempt(self) -> None:
        for forward in (self._current, self._next):
            if forward is not None:
                forward.preemption.request()

    def close(self) -> None:
        self.preempt()
        self._closed = True
        self._current = self._next = None

    # In the threads.

    def _submit(self, forward: _Forward) -> None:
        self._model.submit(lambda: self._run(forward))

    def _run(self, forward: _Forward) -> None:
        """One forward, and the start of the one that follows it."""
        following = None
        work, outcome = forward.work, self._read(forward)
        done = outcome.error is None and not outcome.preempted
        if done and forward.asked is not None and work.following is not None:
            try:
                then = work.following(outcome.value)
                following = _Forward(then, None, None) if then is not None else None
            except Exception as error:  # as one of the head
                outcome = Outcome(work, outcome.seconds, error=error)
        self._model.post(self._finished, forward, outcome, following)
        if following is not None:
            self._submit(following)

    def _read(self, forward: _Forward) -> Outcome:
        work, start_s = forward.work, self._clock()
        span = work.span
        seconds = 0.0
        try:
            forward.preemption.check()
            if span is None:
                raise ValueError("there is nothing to read")
            tokens, hashes = [*span.tokens, *work.guess], extended(span.hashes, work.guess)
            said = self._reader.read(tokens, hashes, span.first, forward.preemption)
            seconds = self._clock() - start_s
            return Outcome(work, seconds, work.head(said))
        except Preempted:
            return Outcome(work, self._clock() - start_s, preempted=True)
        except Exception as error:  # it belongs to who wants the work done
            return Outcome(work, seconds, error=error)

    def _compute(self, work: Work, done: Done) -> None:
        try:
            outcome = Outcome(work, 0.0, work.head(()))
        except Exception as error:  # as above
            outcome = Outcome(work, 0.0, error=error)
        self._heads.post(self._hand_over, outcome, done)

    # On the loop, in the order in which the work ended.

    def _hand_over(self, outcome: Outcome, done: Done) -> None:
        if not self._closed:
            done(outcome)

    def _finished(self, forward: _Forward, outcome: Outcome, following: _Forward | None) -> None:
        forward.outcome = outcome
        if self._closed:
            if following is not None:
                following.preemption.request()
            return
        if following is not None:
            self._next = following
        if forward.asked is not None:
            self._deliver(forward)

    def _deliver(self, forward: _Forward) -> None:
        outcome, asked, done = forward.outcome, forward.asked, forward.done
        if self._closed or outcome is None or asked is None or done is None:
            return
        if self._current is forward:
            self._current = None
        done(Outcome(asked, outcome.seconds, outcome.value, outcome.error, outcome.preempted))
