"""A simulated model: scripted distributions, decoding delays charged in virtual time."""

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions.codec import codec
from dragonrt.runtime.draft import Line
from dragonrt.runtime.drafter import Prediction, PreemptedError, quantize
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.predictor import NextToken
from dragonrt.side import Side


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


class TimedModel:
    """Forwards on the loop's clock; `delay_s` gives the seconds of each in turn.

    A forward over several positions takes as long as one over a single position (SPEC 1.7).
    """

    def __init__(self, delay_s: Callable[[], float]) -> None:
        self._delay_s = delay_s
        self._forward: asyncio.Future[None] | None = None

    def _forward_s(self, hashes: list[int]) -> float:
        """The seconds of a forward over the prefixes with these hashes."""
        return self._delay_s()

    async def _pass(self, hashes: list[int]) -> float:
        """Let a forward over the prefixes with these hashes go by: its seconds."""
        delay_s = self._forward_s(hashes)
        loop = asyncio.get_running_loop()
        self._forward = loop.create_future()
        timer = loop.call_later(delay_s, self._forward.set_result, None)
        try:
            await self._forward
        finally:
            timer.cancel()
            self._forward = None
        return delay_s

    def preempt(self) -> None:
        if self._forward is not None and not self._forward.done():
            self._forward.set_exception(PreemptedError())


class SimulatedPredictor(TimedModel):
    """Implements Predictor: the model of one side as its script has it.

    Its hidden state is a single number between -1 and 1 that the prefix hash decides.
    """

    def __init__(self, side: Side, script: Script, delay_s: Callable[[], float]) -> None:
        super().__init__(delay_s)
        self._side = side
        self._script = script

    async def predict(self, line: Line, first: int, last: int) -> list[NextToken]:
        hashes = line.hashes[first : last + 1]
        await self._pass(hashes)
        return [self._next(each) for each in hashes]

    def _next(self, prefix_hash: int) -> NextToken:
        p = self._script.distribution(self._side, prefix_hash).astype(np.float32)
        hidden = np.array([(prefix_hash >> 32) / 2**31 - 1], dtype=np.float32)
        return NextToken(p, self._script.relevance(self._side, prefix_hash), hidden)


class TimedDrafter(TimedModel, ABC):
    """A Drafter on the loop's clock."""

    @abstractmethod
    def _predict(self, step: int, prefix_hash: int, decode_s: float) -> Prediction:
        """What the model says after the prefix of `step` tokens with that hash."""

    async def predict(self, line: Line, first: int, last: int) -> list[Prediction]:
        hashes = line.hashes[first : last + 1]
        share_s = await self._pass(hashes) / len(hashes)
        return [
            self._predict(step, prefix_hash, share_s)
            for step, prefix_hash in enumerate(hashes, start=first)
        ]


class SimulatedDrafter(TimedDrafter):
    """The model of one side as its script has it."""

    def __init__(
        self, side: Side, plan: Plan, script: Script, delay_s: Callable[[], float]
    ) -> None:
        super().__init__(delay_s)
        self._side = side
        self._script = script
        self._rule = plan.aggregation_rule()
        self._codec = codec(plan.codec, script.vocabulary)

    def _predict(self, step: int, prefix_hash: int, decode_s: float) -> Prediction:
        p = self._script.distribution(self._side, prefix_hash)
        token, distribution, payload = quantize(p, self._side, step, self._rule, self._codec)
        relevance = self._script.relevance(self._side, prefix_hash)
        return Prediction(token, distribution, payload, relevance, 0, decode_s)


@dataclass(frozen=True, slots=True)
class Acceptances:
    """Which drafts become target tokens: one entry per step and side, replayed as they are."""

    device: tuple[bool, ...]
    cloud: tuple[bool, ...]

    def of(self, side: Side) -> tuple[bool, ...]:
        return self.device if side == "device" else self.cloud


class AcceptanceDrafter(TimedDrafter):
    """A model whose draft of a step is the target there if `acceptances` says so, else another.

    Meant for temperature 0 and equal weights. The target after a prefix follows from its hash; a
    side that is to be refused gives it 0.4 and another token of its own 0.6, which loses against
    0.4 twice as it does against 0.4 and 1.
    """

    VOCABULARY = 64

    def __init__(
        self, side: Side, plan: Plan, acceptances: Acceptances, delay_s: Callable[[], float]
    ) -> None:
        super().__init__(delay_s)
        self._side = side
        self._accepted = acceptances.of(side)
        self._rule = plan.aggregation_rule()
        self._codec = codec(plan.codec, self.VOCABULARY)

    def _predict(self, step: int, prefix_hash: int, decode_s: float) -> Prediction:
        target = prefix_hash % self.VOCABULARY
        p = np.zeros(self.VOCABULARY)
        if self._accepted[step]:
            p[target] = 1.0
        else:
            p[target] = 0.4
            p[(target + (1 if self._side == "device" else 2)) % self.VOCABULARY] = 0.6
        token, distribution, payload = quantize(p, self._side, step, self._rule, self._codec)
        return Prediction(token, distribution, payload, 0.0, 0, decode_s)
