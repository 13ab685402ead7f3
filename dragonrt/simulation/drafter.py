"""A simulated model: scripted distributions, decoding delays charged in virtual time."""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions.codec import codec
from dragonrt.runtime.draft import Line
from dragonrt.runtime.drafter import Prediction, PreemptedError, quantize
from dragonrt.runtime.plan import Plan
from dragonrt.sampling.noise import Side


@dataclass(frozen=True, slots=True)
class Script:
    """Next-token distributions of both sides as pure functions of the prefix hash.

    Both sides share a distribution of `sharpness` (the higher, the lower its entropy) and each
    bends it by `disagreement` (0: the sides are equal). Token 0 ends the answer with about
    probability `stop`. Deterministic in `seed`.
    """

    seed: int
    vocabulary: int = 32
    sharpness: float = 3.0
    disagreement: float = 1.0
    stop: float = 0.02

    def distribution(self, side: Side, prefix_hash: int) -> NDArray[np.float64]:
        """Dense probabilities [vocabulary], float64, read only."""
        return _distribution(self, side, prefix_hash)

    def relevance(self, side: Side, prefix_hash: int) -> float:
        """h̃ of one side, which changes with the text as dynamic weights do."""
        return (prefix_hash >> (8 if side == "device" else 16) & 0xFF) / 256.0


@functools.lru_cache(maxsize=4096)
def _distribution(script: Script, side: Side, prefix_hash: int) -> NDArray[np.float64]:
    """Kept, because a prefix comes back: after a roll-back, on another line, in the oracle."""
    key = np.random.SeedSequence([script.seed, prefix_hash]).generate_state(2, np.uint64)
    random = np.random.Generator(np.random.Philox(key=key))
    shared = script.sharpness * random.standard_normal(script.vocabulary)
    bends = script.disagreement * random.standard_normal((2, script.vocabulary))
    logits = shared + bends[0 if side == "device" else 1]
    p: NDArray[np.float64] = np.exp(logits - logits.max())
    p[0] = 0.0
    p *= (1.0 - script.stop) / p.sum()
    p[0] = script.stop
    p.setflags(write=False)
    return p


class SimulatedDrafter:
    """A Drafter on the loop's clock; `delay_s` gives the seconds of each forward in turn."""

    def __init__(
        self, side: Side, plan: Plan, script: Script, delay_s: Callable[[], float]
    ) -> None:
        self._side = side
        self._script = script
        self._delay_s = delay_s
        self._rule = plan.aggregation_rule()
        self._codec = codec(plan.codec, script.vocabulary)
        self._forward: asyncio.Future[None] | None = None

    async def predict(self, line: Line, first: int, last: int) -> list[Prediction]:
        hashes = line.hashes[first : last + 1]
        delay_s = self._delay_s()
        loop = asyncio.get_running_loop()
        self._forward = loop.create_future()
        timer = loop.call_later(delay_s, self._forward.set_result, None)
        try:
            await self._forward
        finally:
            timer.cancel()
            self._forward = None
        predictions = []
        for step, prefix_hash in enumerate(hashes, start=first):
            p = self._script.distribution(self._side, prefix_hash)
            token, distribution, payload = quantize(p, self._side, step, self._rule, self._codec)
            relevance = self._script.relevance(self._side, prefix_hash)
            share = delay_s / len(hashes)
            predictions.append(Prediction(token, distribution, payload, relevance, 0, share))
        return predictions

    def preempt(self) -> None:
        if self._forward is not None and not self._forward.done():
            self._forward.set_exception(PreemptedError())
