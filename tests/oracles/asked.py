"""What an oracle is asked: a question, the models, and which sides took part."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dragonrt.modes.mode import Prediction
from dragonrt.modes.prefix import TokenPrefix
from dragonrt.modes.question import Question
from tests.oracles.brute_force import DRAFT, Coded, drawn, sampled, uniform


class Model(Protocol):
    """One side's model: its prediction after a prefix, as a pure function of the text."""

    def predict(self, step: int, prefix_hash: int) -> Prediction:
        """Return what it says after the prefix of `step` tokens with that hash."""


Models = Mapping[str, Model]
"""The models by name: "device", and the other sides by their names, in the order of the members."""

Decide = Callable[[TokenPrefix], Sequence[int]]
"""The tokens that are decided next, at once, after a decided text; some may lie beyond its end."""


@dataclass(frozen=True, slots=True)
class Attendance:
    """The sides that took part: all that a text may depend on beside the question.

    `alone` says whether the device decided a step without the cloud, `weights` those of the round
    that decided a step, by worker.
    """

    alone: Callable[[int], bool] = lambda step: False
    weights: Callable[[int], Mapping[str, float]] = lambda step: {"cloud": 1.0}


@dataclass(frozen=True, slots=True)
class Asked:
    """The input of an oracle; `resources` are the device's, `texts` are looked up in."""

    question: Question
    models: Models
    course: Attendance
    resources: Any = None
    texts: Sequence[Sequence[int]] = ()

    @property
    def seed(self) -> int:
        """Return the question's seed, from which all noise is drawn."""
        return self.question.seed

    def p(self, name: str, text: TokenPrefix, step: int | None = None) -> NDArray[np.float32]:
        """Return what a model says after the first `step` tokens of a text, or after all."""
        step = len(text) if step is None else step
        return self.models[name].predict(step, text.hashes[step]).p

    def kept(self, name: str, text: TokenPrefix) -> float:
        """Return the logarithm of the share of its weight that a side keeps (SPEC 5)."""
        return self.models[name].predict(len(text), text.hash).kept

    def weight(self, name: str, text: TokenPrefix) -> float:
        """Return what the sides' weights are the softmax of."""
        return self.models[name].predict(len(text), text.hash).relevance + self.kept(name, text)

    def law(self, name: str, text: TokenPrefix, step: int | None = None) -> NDArray[np.float64]:
        """Return the same after the sampler."""
        return sampled(self.question.sampler, self.p(name, text, step))

    def ends(self, text: Sequence[int]) -> bool:
        """Return whether the answer is complete."""
        stopped = bool(text) and text[-1] in self.question.stop_tokens
        return stopped or len(text) >= self.question.max_tokens

    def draws(self, step: int, q: Coded) -> int:
        """Return a device's draft from its own noise."""
        return drawn(q.p, uniform(self.seed, DRAFT, "device", step), q.listed)
