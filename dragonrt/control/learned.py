"""A learned controller: a network of two layers that gives each action a value (QSV IV-C)."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dragonrt import bundled
from dragonrt.control.artefact import Arrays, Record, load
from dragonrt.control.policies import Action, Controller, ControlState, Heuristic, Static
from dragonrt.errors import ControlError

_NONE_YET = -1.0  # distinguishes an answer's beginning from certain tokens
_FARTHEST = 3.0  # standard deviations from the mean at which a rate is clipped


@dataclass(frozen=True, slots=True)
class Encoding:
    """The network's inputs for a state, and the actions of its outputs.

    Outputs are ordered by length, then resolution. The inputs are the newest `confidences`
    confidences (-1 if there are fewer), the next one's and the natural logarithm of the rate,
    standardized.
    """

    lengths: tuple[int, ...]
    resolutions: tuple[int, ...]
    confidences: int
    log_rate_mean: float
    log_rate_deviation: float

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return all actions in the order of the outputs."""
        return tuple(Action(each, finest) for each in self.lengths for finest in self.resolutions)

    @property
    def inputs(self) -> int:
        """Return the number of the network's inputs."""
        return self.confidences + 2

    def features(self, state: ControlState) -> NDArray[np.float32]:
        """Return the network's input for a state: float32 [inputs]."""
        known = state.confidences[-self.confidences :]
        missing = [_NONE_YET] * (self.confidences - len(known))
        log_rate = math.log(state.rate) if state.rate > 0 else -math.inf
        away = (log_rate - self.log_rate_mean) / self.log_rate_deviation
        rate = min(max(away, -_FARTHEST), _FARTHEST)
        return np.array([*missing, *known, state.next_confidence, rate], np.float32)


@dataclass(frozen=True, slots=True)
class Learned:
    """A trained network of two layers, relu between them.

    `weights` are float32 arrays hidden [H, inputs], hidden_bias [H], output [actions, H] and
    output_bias [actions]. `trained_on` records its training data and its scores.
    """

    encoding: Encoding
    weights: Arrays
    trained_on: Record = field(default_factory=dict)

    def values(self, state: ControlState) -> NDArray[np.float32]:
        """Return the value of each action in this state: float32 [actions]."""
        w, features = self.weights, self.encoding.features(state)
        hidden = np.maximum(w["hidden"] @ features + w["hidden_bias"], 0)
        values: NDArray[np.float32] = w["output"] @ hidden + w["output_bias"]
        return values

    def choose(self, state: ControlState) -> Action:
        """Return the action of the highest value in this state; ties: the first."""
        return self.encoding.actions[int(self.values(state).argmax())]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read either of the two files, or their name without suffix. Raises ControlError."""
        return load("controller", path, cls._read)

    @classmethod
    def _read(cls, arrays: Arrays, record: Record) -> Self:
        lengths, resolutions = (tuple(map(_whole, record[n])) for n in ("lengths", "resolutions"))
        mean, deviation = (float(record[n]) for n in ("log_rate_mean", "log_rate_deviation"))
        if not (math.isfinite(mean) and 0 < deviation < math.inf):
            raise ValueError("the scale of its rates is not finite and above 0")
        encoding = Encoding(lengths, resolutions, _whole(record["confidences"]), mean, deviation)
        width, actions = arrays["hidden_bias"].size, len(encoding.actions)
        shapes = {"hidden": (width, encoding.inputs), "hidden_bias": (width,)}
        shapes |= {"output": (actions, width), "output_bias": (actions,)}
        if {name: array.shape for name, array in arrays.items()} != shapes:
            raise ValueError("its two files do not fit together")
        return cls(encoding, arrays, dict(record["trained_on"]))


def _whole(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is not a whole number above 0")
    return value


def controller(spec: str, draft: str = bundled.DEFAULT_DRAFT) -> Controller:
    """Return the controller of a specification, for drafts of that model. Raises ControlError."""
    kind, *numbers = spec.split(":")
    if kind not in ("static", "heuristic"):
        known = spec in ("default", *bundled.controllers())
        return Learned.load(bundled.controller_path(spec, draft) if known else Path(spec))
    if len(numbers) != (2 if kind == "static" else 1) or not all(map(_is_number, numbers)):
        raise ControlError(
            f"{spec!r} is not a controller: write static:LENGTH:RESOLUTION, "
            "heuristic:RESOLUTION, default, or the FILE of a trained one"
        )
    values = map(int, numbers)
    return Static(Action(*values)) if kind == "static" else Heuristic(*values)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 6
