"""A learned controller: a network of two layers that gives each action a value (QSV IV-C)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dragonrt import bundled
from dragonrt.control.artefact import Arrays, Record, finite, load
from dragonrt.control.policies import Action, Controller, ControlState, Heuristic, Static
from dragonrt.errors import ControlError

VALID_FORMS = (
    "static:LENGTH:RESOLUTION, heuristic:RESOLUTION, default, or the FILE of a trained one"
)
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
        """Return all actions in the order of the outputs."""
        return tuple(Action(each, finest) for each in self.lengths for finest in self.resolutions)

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

    encoding: Encoding
    weights: NetworkWeights
    trained_on: Mapping[str, Any] = field(default_factory=dict)

    def choose(self, state: ControlState) -> Action:
        """The action of the highest value in this state; ties: the first."""
        best = int(self.weights.values(self.encoding.features(state)).argmax())
        return self.encoding.actions[best]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the two files; `path` is either of them, or their name without suffix.

        Raises ControlError with one line that says what is wrong with the files.
        """
        return load("controller", path, cls._read)

    @classmethod
    def _read(cls, arrays: Arrays, record: Record) -> Self:
        lengths, resolutions = (tuple(map(_whole, record[n])) for n in ("lengths", "resolutions"))
        mean, deviation = (float(record[n]) for n in ("log_rate_mean", "log_rate_deviation"))
        encoding = Encoding(lengths, resolutions, _whole(record["confidences"]), mean, deviation)
        weights = NetworkWeights(**{key: finite(array) for key, array in arrays.items()})
        if not weights.fit(encoding):
            raise ValueError("its two files do not fit together")
        return cls(encoding, weights, dict(record["trained_on"]))


def _whole(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is not a whole number above 0")
    return value


def controller(spec: str) -> Controller:
    """The controller that a specification names: one of `VALID_FORMS`.

    Raises ControlError with one line saying what is wrong.
    """
    match spec.split(":"):
        case ["static", length, resolution]:
            return Static(Action(_number(length, spec), _number(resolution, spec)))
        case ["heuristic", resolution]:
            return Heuristic(_number(resolution, spec))
        case ["static" | "heuristic", *_]:
            raise ControlError(f"{spec!r} is not a controller: write {VALID_FORMS}")
    return Learned.load(
        bundled.controller_path(spec) if spec in bundled.controllers() else Path(spec)
    )


def _number(text: str, spec: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise ControlError(f"{text!r} in {spec!r} is not a number: write {VALID_FORMS}")
    return int(text)
