"""A Drafter on a real model: rows of documents, weighed by relevance, in the worker thread."""

import asyncio
from dataclasses import replace

from dragonrt.distributions import Codec
from dragonrt.language.preemption import Preempted, Preemption
from dragonrt.language.reader import Mixture, Reader
from dragonrt.runtime.draft import Line, extend_hash
from dragonrt.runtime.drafter import Prediction, PreemptedError, quantize
from dragonrt.runtime.lookup import Lookup
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.scheduler import Placement
from dragonrt.runtime.worker import ModelWorker
from dragonrt.side import Side


class _Forward:
    """One forward over `tokens`: predictions after their prefixes from length `first` on.

    `claimed` says that the generation asked for it; `done` is awaited on the loop.
    """

    def __init__(
        self, tokens: list[int], hashes: list[int], first: int, done: "asyncio.Future[None]"
    ) -> None:
        self.tokens = tokens
        self.hashes = hashes
        self.first = first
        self.claimed = False
        self.preemption = Preemption()
        self.done = done
        self.predictions: list[Prediction] = []
        self.error: BaseException | None = None


class ModelDrafter:
    """Implements Drafter.

    Unless the plan is synchronous, the worker thread decodes what follows a draft while the loop
    still handles it, so that no hand-over between the two stands between forwards, and feeds what
    `lookup` guesses in the same forward. Where a block would have other bits than its tokens one by
    one (SPEC section 0) nothing is guessed.
    """

    def __init__(
        self,
        side: Side,
        worker: ModelWorker,
        reader: Reader,
        lookup: Lookup,
        plan: Plan,
        codec: Codec,
    ) -> None:
        self._side = side
        self._worker = worker
        self._reader = reader
        self._lookup = lookup
        self._plan = plan
        self._ahead = plan.placement is not Placement.SYNC
        self._rule = plan.aggregation_rule()
        self._codec = codec
        self._current: _Forward | None = None
        self._next: _Forward | None = None
        self._loop = asyncio.get_running_loop()

    def preempt(self) -> None:
        for forward in (self._current, self._next):
            if forward is not None:
                forward.preemption.request()

    async def predict(self, line: Line, first: int, last: int) -> list[Prediction]:
        forward, self._next = self._next, None
        if forward is None or first != last or forward.hashes[-1] != line.hashes[last]:
            if forward is not None:
                forward.preemption.request()
            tokens, hashes = line.tokens[:last], line.hashes[: last + 1]
            forward = _Forward(tokens, hashes, first, self._loop.create_future())
            self._start(forward)
        forward.claimed = True
        self._current = forward
        try:
            await forward.done
        finally:
            self._current = None
        if isinstance(forward.error, Preempted):
            raise PreemptedError
        if forward.error is not None:
            raise forward.error
        return forward.predictions

    def _start(self, forward: _Forward) -> None:
        self._worker.submit(lambda: self._run(forward))

    def _run(self, forward: _Forward) -> None:
        """In the worker thread: one forward, and the start of the one that follows it."""
        following = None
        try:
            forward.predictions = self._predict(forward)
            following = self._following(forward)
        except BaseException as error:  # it belongs to who awaits the forward
            forward.error = error
        self._worker.post(self._finished, forward, following)
        if following is not None:
            self._start(following)

    def _following(self, forward: _Forward) -> _Forward | None:
        """The forward after this one's drafts: it is asked for next unless the line dies."""
        steps = len(forward.tokens) - forward.first
        drafted = [prediction.token for prediction in forward.predictions[steps:]]
        length = len(forward.tokens) + len(drafted)
        if not (self._ahead and forward.claimed and self._goes_on(drafted[-1], length)):
            return None
        tokens, hashes = [*forward.tokens, *drafted], _extended(forward.hashes, drafted)
        return _Forward(tokens, hashes, length, self._loop.create_future())

    def _goes_on(self, token: int, length: int) -> bool:
        """Whether an answer of `length` tokens that ends in `token` has a next one."""
        return length < self._plan.max_tokens and token not in self._plan.stop_tokens

    def _finished(self, forward: _Forward, following: _Forward | None) -> None:
        """On the loop, in the order in which the forwards ended."""
        if following is not None:
            self._next = following
        if not forward.done.done():
            forward.done.set_result(None)

    def _predict(self, forward: _Forward) -> list[Prediction]:
        """Cut the cache back to what is common, run the forward, quantize and sample."""
        start_s = self._loop.time()
        forward.preemption.check()
        tokens, first = forward.tokens, forward.first
        guess = (
            self._guess(tokens) if len(tokens) > self._reader.kept(forward.hashes, first) else []
        )
        fed = [*tokens, *guess]
        hashes = _extended(forward.hashes, guess)
        after = self._reader.read(fed, hashes, first, forward.preemption)
        forward_s = self._loop.time() - start_s
        asked = len(tokens) + 1 - first
        predictions = [self._predicted(after[n], first + n) for n in range(asked)]
        right = 0
        while right < len(guess) and predictions[-1].token == guess[right]:
            right += 1
            n = asked - 1 + right
            predictions.append(self._predicted(after[n], first + n))
        self._lookup.learn(len(guess), right)
        decode_s = forward_s / len(predictions)
        return [replace(prediction, decode_s=decode_s) for prediction in predictions]

    def _guess(self, tokens: list[int]) -> list[int]:
        """What the lookup offers, as far as the answer may go."""
        if not (self._ahead and self._plan.follow and self._reader.in_blocks):
            return []
        guess = self._lookup.guess(tokens, self._plan.max_tokens - len(tokens) - 1)
        for length, token in enumerate(guess):
            if token in self._plan.stop_tokens:
                return guess[:length]
        return guess

    def _predicted(self, said: Mixture, step: int) -> Prediction:
        token, distribution, payload = quantize(said.p, self._side, step, self._rule, self._codec)
        document = said.carrier(token)
        return Prediction(token, distribution, payload, said.relevance, document, decode_s=0.0)


def _extended(hashes: list[int], tokens: list[int]) -> list[int]:
    """The prefix hashes of a line after more tokens."""
    extended = list(hashes)
    for token in tokens:
        extended.append(extend_hash(extended[-1], token))
    return extended
