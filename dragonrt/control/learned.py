"""A learned controller: a network of two layers that gives each action a value (QSV IV-C).

It is kept in two files of one name: `NAME.safetensors` holds the weights, `NAME.json` what they
mean and what they were trained on.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from dragonrt.control.errors import ControlError
from dragonrt.control.policies import Action, State

FORMAT = "dragonrt controller 1"
_FARTHEST = 3.0  # a rate counts as no farther from the mean than this many standard deviations


@dataclass(frozen=True, slots=True)
class Encoding:
    """How states become inputs of the network, and its outputs actions.

    Outputs go through the lengths and, for each, through the resolutions. The inputs are the newest
    `confidences` confidences (1 where there is none yet) and the natural logarithm of the rate,
    less `log_rate_mean` and divided by `log_rate_deviation`. Raises ControlError if these two are
    not finite numbers, the second above 0.
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
        return self.confidences + 1

    def features(self, state: State) -> NDArray[np.float32]:
        """The network's input for a state: float32 [inputs]."""
        features = np.ones(self.inputs, np.float32)
        known = state.confidences[-self.confidences :]
        features[self.confidences - len(known) : self.confidences] = known
        log_rate = math.log(state.rate) if state.rate > 0 else -math.inf
        away = (log_rate - self.log_rate_mean) / self.log_rate_deviation
        features[-1] = min(max(away, -_FARTHEST), _FARTHEST)
        return features


@dataclass(frozen=True, slots=True)
class Weights:
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
        return [array.shape for array in arrays] == shapes and all(
            array.dtype == np.float32 and bool(np.isfinite(array).all()) for array in arrays
        )


@dataclass(frozen=True, slots=True)
class Learned:
    """The action of the highest value. `trained_on` says what it learned from and how well."""

    name: str
    encoding: Encoding
    weights: Weights
    trained_on: Mapping[str, Any] = field(default_factory=dict)

    def choose(self, state: State) -> Action:
        """The action of the highest value in this state; ties: the first."""
        best = int(self.weights.values(self.encoding.features(state)).argmax())
        return self.encoding.action(best)

    def save(self, path: Path) -> tuple[Path, Path]:
        """Write the two files of that name. Raises ControlError if that cannot be done."""
        arrays = {name: getattr(self.weights, name) for name in Weights.__slots__}
        encoding = {name: getattr(self.encoding, name) for name in Encoding.__slots__}
        record = {"format": FORMAT, **encoding, "trained_on": dict(self.trained_on)}
        weights_file, record_file = _files(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            weights_file.write_bytes(save(arrays))
            text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
            record_file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ControlError(
                f"cannot write the controller {path}: {error.strerror or error}"
            ) from None
        return weights_file, record_file

    @classmethod
    def load(cls, path: Path) -> Self:
        """What `save` wrote; either of its two files, or their name without suffix, is `path`.

        Raises ControlError with one line that says what is wrong with the files.
        """
        weights_file, record_file = _files(path)
        for file in (weights_file, record_file):
            if not file.is_file():
                raise ControlError(
                    f"there is no controller {path}: {file.name} is missing; "
                    "make one with `dragonrt train controller`"
                )
        try:
            arrays = load_file(weights_file)
            record = json.loads(record_file.read_text(encoding="utf-8"))
            if not isinstance(record, dict):
                raise ValueError("its record is not a JSON object")
            if record["format"] != FORMAT:
                raise ValueError(f"its format is {record['format']!r}, not {FORMAT!r}")
            encoding = Encoding(
                tuple(_whole(one) for one in record["lengths"]),
                tuple(_whole(one) for one in record["resolutions"]),
                _whole(record["confidences"]),
                float(record["log_rate_mean"]),
                float(record["log_rate_deviation"]),
            )
            weights = Weights(**arrays)
            trained_on = dict(record["trained_on"])
        except (OSError, ValueError, KeyError, TypeError, SafetensorError, ControlError) as error:
            raise ControlError(f"{path} is not a controller: {_reason(error)}") from None
        if not weights.fit(encoding):
            raise ControlError(f"{path} is not a controller: its two files do not fit together")
        return cls(weights_file.stem, encoding, weights, trained_on)


def _files(path: Path) -> tuple[Path, Path]:
    """The files of the weights and of the record of a name, with one of their suffixes or none."""
    base = path.with_suffix("") if path.suffix in (".safetensors", ".json") else path
    return Path(f"{base}.safetensors"), Path(f"{base}.json")


def _whole(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is not a whole number above 0")
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
