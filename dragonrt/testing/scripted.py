"""Simulated models: scripted distributions, and decoding delays in virtual time."""

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.control.scheduler import DecodeProfile
from dragonrt.control.trained import Controller, TokenVerifier, controller
from dragonrt.modes import entry_of
from dragonrt.modes.mode import Prediction, Work
from dragonrt.modes.prefix import extended
from dragonrt.modes.settings import Counterpart, Settings
from dragonrt.node.answers.model_session import BackendSession, ForwardResult, OnResult
from dragonrt.side import Side
from dragonrt.timeouts import USUAL, Timeouts


@dataclass(frozen=True, slots=True)
class Script:
    """Next-token distributions of both sides as pure functions of the prefix hash.

    Each side varies one random distribution. A higher `sharpness` lowers its entropy, a higher
    `disagreement` makes the sides differ more (0: not at all). Token 0 ends the answer with
    probability `stop`. The sides' weights in the mixture change at every token unless `steady`. If
    `loses`, a side loses weight after some prefixes, as if its documents contradicted the answer.
    With `worker`, the cloud is that worker of mode `federated`, with a distribution of its own.
    """

    seed: int
    vocabulary: int = 32
    sharpness: float = 3.0
    disagreement: float = 1.0
    stop: float = 0.02
    steady: bool = False
    loses: bool = False
    worker: int | None = None

    def distribution(self, side: Side, prefix_hash: int) -> NDArray[np.float64]:
        """Return a side's next-token probabilities after a prefix: [vocabulary], read only."""
        return _distribution(self, side, prefix_hash)

    def relevance(self, side: Side, prefix_hash: int) -> float:
        """Return a side's relevance after a prefix, 0 to 2; softmax over sides gives weights."""
        if self.worker is not None:
            return (prefix_hash >> (8 + 3 * self.worker) & 0xFF) / 128.0
        if self.steady:
            prefix_hash = self.seed << 8
        return (prefix_hash >> (8 if side == "device" else 16) & 0xFF) / 256.0

    def kept(self, side: Side, prefix_hash: int) -> float:
        """Return log of the share of mixture weight that a side keeps: 0 (all) unless `loses`."""
        which = prefix_hash >> (24 if side == "device" else 28) & 0xF
        return {0: -40.0, 1: -1.5}.get(which, 0.0) if self.loses else 0.0


@functools.lru_cache(maxsize=4096)
def _distribution(script: Script, side: Side, prefix_hash: int) -> NDArray[np.float64]:
    """Kept, because a prefix comes back: after a roll-back, on another line, in the oracle."""
    if script.worker is not None:
        key = [script.seed, prefix_hash, script.worker]
        bend = script.disagreement * np.random.default_rng(key).standard_normal(script.vocabulary)
        common = replace(script, worker=None)
        p: NDArray[np.float64] = common.distribution("cloud", prefix_hash) * np.exp(bend)
    else:
        words = np.random.SeedSequence([script.seed, prefix_hash]).generate_state(2, np.uint64)
        random = np.random.Generator(np.random.Philox(key=words))
        shared = script.sharpness * random.standard_normal(script.vocabulary)
        bends = script.disagreement * random.standard_normal((2, script.vocabulary))
        logits = shared + bends[0 if side == "device" else 1]
        p = np.exp(logits - logits.max())
    p[0] = 0.0
    p *= (1.0 - script.stop) / p.sum()
    p[0] = script.stop
    p.setflags(write=False)
    return p


@dataclass(frozen=True, slots=True)
class SimulatedPrediction:
    """The Prediction of a scripted model with one document; `hidden` is one number in -1 … 1."""

    p: NDArray[np.float32]
    relevance: float
    hidden: NDArray[np.float32]
    kept: float = 0.0

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.ones(1)

    def shares(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the probability of each of `tokens` by the only document: [1, len(tokens)]."""
        return self.p[None, tokens].astype(np.float64)


class SimulatedModel(Protocol):
    """The interface of one side's simulated model: a pure function from prefixes to predictions."""

    def predict(self, step: int, prefix_hash: int) -> Prediction:
        """Return the prediction after the prefix of `step` tokens that has this hash."""


def predictions_of(model: SimulatedModel, work: Work) -> list[Prediction]:
    """Return the model's predictions for `work`, a forward that a mode wants: one per prefix."""
    if work.span is None:
        return []
    hashes = extended(work.span.hashes, work.guess)
    return [model.predict(step, hashes[step]) for step in range(work.span.first, len(hashes))]


@dataclass(frozen=True, slots=True)
class ScriptedModel(SimulatedModel):
    """The SimulatedModel of one side of a Script; its hidden state follows from the prefix hash."""

    side: Side
    script: Script

    @override
    def predict(self, step: int, prefix_hash: int) -> Prediction:
        p = self.script.distribution(self.side, prefix_hash).astype(np.float32)
        hidden = np.array([(prefix_hash >> 32) / 2**31 - 1], dtype=np.float32)
        relevance = self.script.relevance(self.side, prefix_hash)
        kept = self.script.kept(self.side, prefix_hash)
        return SimulatedPrediction(p, relevance, hidden, kept)


class PrefixVerifier(TokenVerifier):
    """Predicts a draft's acceptance from the hidden state, for simulations of mode `sprinter`."""

    threshold = 0.4

    @override
    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        return float(hidden[0] + 1) / 2


class ScriptedParts:
    """Base of simulated sides: the marker, controllers and verifiers that modes ask a side for."""

    marker = (3, 4)

    def controller(self, name: str) -> Controller:
        return controller(name)

    def verifier(self, file: str | None, target: str) -> PrefixVerifier:
        return PrefixVerifier()


@dataclass(frozen=True, slots=True)
class ScriptedHost(ScriptedParts):
    """A simulated side as modes see it before an answer: its token count, timeouts and speed."""

    side: Side
    vocabulary: int
    timeouts: Timeouts = USUAL
    profile: DecodeProfile | None = None


COUNTERPART = Counterpart(1.0, lambda: "simulated")
"""The scripted other side."""


def scripted_resources(
    settings: Settings,
    vocabulary: int,
    members: Mapping[str, float] = MappingProxyType({"cloud": 1.0}),
    side: Side = "device",
    timeouts: Timeouts = USUAL,
) -> Any:
    """Return a simulated side's Resources: what answers in the mode of `settings` need of it.

    `vocabulary` is the number of tokens. On a device, `members` has its clouds' mixture weights.
    """
    others = {name: replace(COUNTERPART, weight=weight) for name, weight in members.items()}
    host = ScriptedHost(side, vocabulary, timeouts)
    return entry_of(settings).prepare(host, others if side == "device" else {}, settings)


class SimulatedContext(BackendSession):
    """Runs an answer's forwards on a simulated model; each takes `delay_s()` of the loop's time.

    A forward over several positions takes as long as one over a single position (SPEC 1.7). The
    prediction right after the prompt takes no time, nor does postprocessing. `seconds`, if given,
    replaces `delay_s`: it returns a forward's time from the hashes of its prefixes.
    """

    def __init__(
        self,
        model: SimulatedModel,
        delay_s: Callable[[], float],
        seconds: Callable[[list[int]], float] | None = None,
    ) -> None:
        self._model = model
        self._delay_s = delay_s
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._stop: Callable[[], None] | None = None
        self._closed = False

    @override
    def start(self, work: Work, done: OnResult) -> None:
        span = work.span
        if span is None:
            self._loop.call_soon(self._hand_over, lambda: self._computed(work, 0.0), done)
            return
        if self._timer is not None:
            raise ValueError("a forward is under way")
        hashes = extended(span.hashes, work.guess)[span.first :]
        delay_s = 0.0
        if span.tokens or work.guess:
            delay_s = self._delay_s() if self._seconds is None else self._seconds(hashes)
        began_s = self._loop.time()

        def finish() -> None:
            self._timer = None
            self._hand_over(lambda: self._computed(work, delay_s), done)

        def stopped() -> ForwardResult:
            return ForwardResult(work, self._loop.time() - began_s, preempted=True)

        def stop() -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
                self._loop.call_soon(self._hand_over, stopped, done)

        self._timer = self._loop.call_later(delay_s, finish)
        self._stop = stop

    @override
    def preempt(self) -> None:
        if self._stop is not None:
            self._stop()

    @override
    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _hand_over(self, outcome: Callable[[], ForwardResult], done: OnResult) -> None:
        if not self._closed:
            done(outcome())

    def _computed(self, work: Work, seconds: float) -> ForwardResult:
        try:
            return ForwardResult(work, seconds, self._value(work))
        except Exception as error:  # it belongs to who wants the work done
            return ForwardResult(work, seconds, error=error)

    def _value(self, work: Work) -> Any:
        return work.postprocess(predictions_of(self._model, work))
