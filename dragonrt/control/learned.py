"""A learned controller: a network of two layers that gives each action a value (QSV IV-C)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dragonrt.control.artefact import Arrays, Artefact, Record, finite
from dragonrt.control.policies import Action, ControlState
from dragonrt.errors import ControlError

CONTROLLER = Artefact("controller", 2)
_NONE_YET = -1.0  # so that an answer's beginning is told from tokens that were certain
_FARTHEST = 3.0  # a rate counts as no farther from the mean than this many standard deviations


@dataclass(frozen=True, slots=True)
class Encoding:
    """How states become inputs of the network, and its outputs actions.

    Outputs go through the lengths and, for each, through the resolutions. The inputs are the newest
    `confidences` confidences (-1 where there is none yet), the next one's and the natural logarithm
    of the rate, less `log_rate_mean` and divided by `log_rate_deviation`. Raises ControlError if
    these two are not finite numbers, the second above 0.
    """

    lengths: tuple[int, ...]
    resolutions: tuple[int, ...]
    confidences: int
    log_rate_mean: float
    log_rate_deviation: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.log_rate_mean) and 0 < self.log_rate_deviation < math.inf):
            raise ControlError("the scale of a controller's rates must be finite and above 0")

    @property
    def actions(self) -> tuple[Action, ...]:
        """All of them, in the order of the outputs."""
        outputs = range(len(self.lengths) * len(self.resolutions))
        return tuple(self.action(output) for output in outputs)

    def action(self, output: int) -> Action:
        """The action of an output, counted from 0."""
        length, resolution = divmod(output, len(self.resolutions))
        return Action(self.lengths[length], self.resolutions[resolution])

    @property
    def inputs(self) -> int:
        """How many numbers the network is given."""
        return self.confidences + 2

    def features(self, state: ControlState) -> NDArray[np.float32]:
        """The network's input for a state: float32 [inputs]."""
        features = np.full(self.inputs, _NONE_YET, np.float32)
        known = state.confidences[-self.confidences :]
        features[self.confidences - len(known) : self.confidences] = known
        features[-2] = state.next_confidence
        log_rate = math.log(state.rate) if state.rate > 0 else -math.inf
        away = (log_rate - self.log_rate_mean) / self.log_rate_deviation
        features[-1] = min(max(away, -_FARTHEST), _FARTHEST)
        return features


@dataclass(frozen=True, slots=True)
class NetworkWeights:
    """A network of two layers, float32: relu between them.

    `hidden` is [H, inputs], `hidden_bias` [H], `output` [actions, H], `output_bias` [actions].
    """

    hidden: NDArray[np.float32]
    hidden_bias: NDArray[np.float32]
    output: NDArray[np.float32]
    output_bias: NDArray[np.float32]

    def values(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """The value of each action: float32 [actions]."""
        hidden = np.maximum(self.hidden @ features + self.hidden_bias, 0)
        values: NDArray[np.float32] = self.output @ hidden + self.output_bias
        return values

    def fit(self, encoding: Encoding) -> bool:
        """Whether the shapes are those that the encoding needs."""
        width, actions = self.hidden_bias.size, len(encoding.actions)
        shapes = [(width, encoding.inputs), (width,), (actions, width), (actions,)]
        arrays = (self.hidden, self.hidden_bias, self.output, self.output_bias)
        return [array.shape for array in arrays] == shapes


@dataclass(frozen=True, slots=True)
class Learned:
    """The action of the highest value. `trained_on` says what it learned from and how well."""

    name: str
    encoding: Encoding
    weights: NetworkWeights
    trained_on: Mapping[str, Any] = field(default_factory=dict)

    def choose(self, state: ControlState) -> Action:
        """The action of the highest value in this state; ties: the first."""
        best = int(self.weights.values(self.encoding.features(state)).argmax())
        return self.encoding.action(best)

    def save(self, path: Path) -> tuple[Path, Path]:
        """Write its two files. Raises ControlError if that cannot be done."""
        arrays = {name: getattr(self.weights, name) for name in NetworkWeights.__slots__}
        encoding = {name: getattr(self.encoding, name) for name in Encoding.__slots__}
        return CONTROLLER.save(path, arrays, {**encoding, "trained_on": dict(self.trained_on)})

    @classmethod
    def load(cls, path: Path) -> Self:
        """What `save` wrote; either of its two files, or their name without suffix, is `path`.

        Raises ControlError with one line that says what is wrong with the files.
        """
        return CONTROLLER.load(path, cls._read)

    @classmethod
    def _read(cls, name: str, arrays: Arrays, record: Record) -> Self:
        encoding = Encoding(
            tuple(_whole(one) for one in record["lengths"]),
            tuple(_whole(one) for one in record["resolutions"]),
            _whole(record["confidences"]),
            float(record["log_rate_mean"]),
            float(record["log_rate_deviation"]),
        )
        weights = NetworkWeights(**{key: finite(array) for key, array in arrays.items()})
        if not weights.fit(encoding):
            raise ValueError("its two files do not fit together")
        return cls(name, encoding, weights, dict(record["trained_on"]))


def _whole(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is not a whole number above 0")
    return value
