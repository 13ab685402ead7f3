"""Controllers choose the length of blocks, verifiers predict acceptance; some of both are trained.

A controller (SPEC 2, "Adaptive control"; QSV IV) chooses at each block's first token, after the
draft model's forward and before sampling. It is a pure function of the state, so there is nothing
to roll back. A verifier is a head on a draft model (SPEC section 4). Trained ones have two files:
weights in `NAME.safetensors`, and in `NAME.json` how to use them. `scripts/train` writes both.
"""

import json
import logging
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

import numpy as np
import platformdirs
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from typing_extensions import override

from dragonrt import bundled
from dragonrt.errors import ControlError


@dataclass(frozen=True, slots=True)
class Action:
    """A controller's choice for a block: draft `length` tokens L, with a lattice of `resolution` ℓ.

    Draft probabilities are rounded to multiples of 1/ℓ. Raises ControlError if L or ℓ is below 1.
    """

    length: int
    resolution: int

    def __post_init__(self) -> None:
        if self.length < 1 or self.resolution < 1:
            raise ControlError("the length and the resolution of a block must be at least 1")


@dataclass(frozen=True, slots=True)
class ControlState:
    """What a Controller knows before a block is drafted.

    Attributes:
        confidences: the probability that the draft model, after the sampler and before the codec,
            gave to each of the newest tokens, newest last. Tokens that it gave no distribution for
            are omitted, such as the token after a wholly accepted block.
        next_confidence: the draft model's largest probability for the block's first token, before
            the sampler. That token is drafted in any case.
        rate: the bandwidth of the uplink in bit/s now, infinite if nothing limits it.
        accepted, drafted: tokens of the last block, up to its first rejected one; 0 without one.
    """

    confidences: tuple[float, ...]
    next_confidence: float
    rate: float
    accepted: int
    drafted: int


class Controller(ABC):
    """A policy that chooses a block's length L and lattice resolution ℓ before it is drafted."""

    @abstractmethod
    def choose(self, state: ControlState) -> Action: ...


@dataclass(frozen=True, slots=True)
class Static(Controller):
    """The controller that chooses the same action for every block."""

    action: Action

    @override
    def choose(self, state: ControlState) -> Action:
        return self.action


@dataclass(frozen=True, slots=True)
class Heuristic(Controller):
    """Drafts as many tokens as were accepted last (+1 if all, at first 4), at one `resolution`."""

    resolution: int

    def __post_init__(self) -> None:
        Action(1, self.resolution)

    @override
    def choose(self, state: ControlState) -> Action:
        if state.drafted == 0:
            length = 4  # before the first verdict
        elif state.accepted == state.drafted:
            length = state.drafted + 1
        else:
            length = max(1, state.accepted)
        return Action(length, self.resolution)


T = TypeVar("T")
Arrays = Mapping[str, NDArray[Any]]
Record = Mapping[str, Any]
FORMATS = {"controller": "dragonrt controller 2", "verifier": "dragonrt verifier 1"}
"""The `format` in the record of each kind that `scripts/train/run` trains."""


def files(path: Path) -> tuple[Path, Path]:
    """Return the paths (NAME.safetensors, NAME.json) of a trained network, given NAME or either."""
    base = path.with_suffix("") if path.suffix in (".safetensors", ".json") else path
    return Path(f"{base}.safetensors"), Path(f"{base}.json")


def load(kind: str, path: Path, read: Callable[[Arrays, Record], T]) -> T:
    """Load the two files of a trained network (see `files`), and return `read(arrays, record)`.

    `kind` is "controller" or "verifier", `arrays` are finite float32 weights, `record` is the JSON.
    Raises ControlError if a file is wrong, or `read` raises ValueError, KeyError or TypeError.
    """
    weights_file, record_file = files(path.expanduser())
    for file in (weights_file, record_file):
        if not file.is_file():
            raise ControlError(
                f"there is no {kind} {path}: {file.name} is missing; name one that is bundled "
                "or a file that is there"
            )
    try:
        arrays = load_file(weights_file)
        record = json.loads(record_file.read_text(encoding="utf-8"))
        if record["format"] != FORMATS[kind]:
            raise ValueError(f"its format is {record['format']!r}, not {FORMATS[kind]!r}")
        if not all(a.dtype == np.float32 and np.isfinite(a).all() for a in arrays.values()):
            raise ValueError("its weights are not finite float32 numbers")
        return read(arrays, record)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, ControlError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else f"{error}"
        reason = reason.splitlines()[0] if reason else type(error).__name__
        raise ControlError(f"{path} is not a {kind}: {reason}") from None


_NUMBER = re.compile(r"[0-9]{1,6}")
_NONE_YET = -1.0  # distinguishes an answer's beginning from certain tokens
_FARTHEST = 3.0  # standard deviations from the mean at which a rate is clipped


@dataclass(frozen=True, slots=True)
class Learned(Controller):
    """Chooses the action to which a trained network (two layers and relu) gives the highest value.

    Inputs are the newest confidences of a ControlState (as many as `confidences`; missing ones are
    -1), its `next_confidence`, and ln `rate`, standardized. Outputs are the values of `actions`, by
    length, then resolution. `weights` are float32 arrays hidden [H, inputs], hidden_bias [H],
    output [actions, H], output_bias [actions]. `trained_on` records its training data and scores.
    """

    actions: tuple[Action, ...]
    confidences: int
    log_rate_mean: float
    log_rate_deviation: float
    weights: Arrays
    trained_on: Record = field(default_factory=dict)

    def features(self, state: ControlState) -> NDArray[np.float32]:
        """Return the network's input for a state: float32 [inputs]."""
        known = state.confidences[-self.confidences :]
        missing = [_NONE_YET] * (self.confidences - len(known))
        log_rate = math.log(state.rate) if state.rate > 0 else -math.inf
        away = (log_rate - self.log_rate_mean) / self.log_rate_deviation
        rate = min(max(away, -_FARTHEST), _FARTHEST)
        return np.array([*missing, *known, state.next_confidence, rate], np.float32)

    @override
    def choose(self, state: ControlState) -> Action:
        w = self.weights
        hidden = np.maximum(w["hidden"] @ self.features(state) + w["hidden_bias"], 0)
        return self.actions[int((w["output"] @ hidden + w["output_bias"]).argmax())]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load NAME.safetensors and NAME.json; `path` is NAME or one file. Raises ControlError."""
        return load("controller", path, cls._read)

    @classmethod
    def _read(cls, arrays: Arrays, record: Record) -> Self:
        lengths, resolutions = (tuple(map(_whole, record[n])) for n in ("lengths", "resolutions"))
        actions = tuple(Action(length, finest) for length in lengths for finest in resolutions)
        mean, deviation = (float(record[n]) for n in ("log_rate_mean", "log_rate_deviation"))
        if not (math.isfinite(mean) and 0 < deviation < math.inf):
            raise ValueError("the scale of its rates is not finite and above 0")
        known, width = _whole(record["confidences"]), arrays["hidden_bias"].size
        shapes = {"hidden": (width, known + 2), "hidden_bias": (width,)}
        shapes |= {"output": (len(actions), width), "output_bias": (len(actions),)}
        if {name: array.shape for name, array in arrays.items()} != shapes:
            raise ValueError("its two files do not fit together")
        return cls(actions, known, mean, deviation, arrays, dict(record["trained_on"]))


def _whole(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is not a whole number above 0")
    return value


def controller(spec: str, draft: str = bundled.DEFAULT_DRAFT) -> Controller:
    """Return the controller that `spec` names. Raises ControlError if it names none.

    `spec` is static:LENGTH:RESOLUTION, heuristic:RESOLUTION, a file, a bundled name, or "default":
    the bundled controller for the draft model named `draft`, or else for any model.
    """
    kind, *numbers = spec.split(":")
    if kind not in ("static", "heuristic"):
        known = spec in ("default", *bundled.controllers())
        return Learned.load(bundled.controller_path(spec, draft) if known else Path(spec))
    if len(numbers) != (2 if kind == "static" else 1) or not all(map(_NUMBER.fullmatch, numbers)):
        raise ControlError(
            f"{spec!r} is not a controller: write static:LENGTH:RESOLUTION, "
            "heuristic:RESOLUTION, default, or the FILE of a trained one"
        )
    values = map(int, numbers)
    return Static(Action(*values)) if kind == "static" else Heuristic(*values)


log = logging.getLogger("dragonrt")

KIND = "sprinter"
"""The prediction for a token x drafted from q, if p is the target's distribution: q(x)/p(x) ≤ λ
(SPRINTER section 3.2). Files name it."""

Features = Literal["hidden", "hidden+confidence"]
"""hidden: the draft model's last hidden state of the token before x, from which q was computed.
hidden+confidence: that, and the `confidences` of x."""


class TokenVerifier(ABC):
    """Predicts whether the target model will accept a drafted token."""

    threshold: float
    """τ of a sprinter whose settings have none."""

    @abstractmethod
    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        """Return the probability that the target accepts `token`, which was drafted from `q` [V].

        `q` is the draft model's output before any sampler, `hidden` [hidden] its last hidden state.
        """


@dataclass(frozen=True, slots=True)
class TrainedPair:
    """Names and fingerprints of the draft model and the target model that a verifier is for."""

    draft: str
    target: str
    draft_fingerprint: str
    target_fingerprint: str

    @property
    def fingerprints(self) -> tuple[str, str]:
        return self.draft_fingerprint, self.target_fingerprint


@dataclass(frozen=True, slots=True, eq=False)
class Verifier(TokenVerifier):
    """Predicts acceptance by logistic regression, σ(w · f + b), on `features` f of a drafted token.

    Attributes:
        weight: w, float32 [features].
        threshold: τ; below this probability a token is expected to be rejected by the target.
        ratio: λ; in training, x counted as accepted if q(x)/p(x) ≤ λ for draft q and target p.
        trained_on: its training data, and its scores on held-out text.
    """

    features: Features
    pair: TrainedPair
    weight: NDArray[np.float32]
    bias: float
    threshold: float = 0.5
    ratio: float | None = None
    trained_on: Mapping[str, Any] = field(default_factory=dict)

    @override
    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        if self.features == "hidden+confidence":
            hidden = np.concatenate((hidden, confidences(q, token)))
        logit = float(self.weight @ hidden) + self.bias
        return (1 + math.tanh(logit / 2)) / 2  # the sigmoid, of any logit

    def check_pair(self, draft_fingerprint: str, target_fingerprint: str) -> None:
        """Raise ControlError if the verifier was trained for another draft or target model."""
        if (draft_fingerprint, target_fingerprint) != self.pair.fingerprints:
            raise ControlError(
                f"this verifier was trained for drafts of {self.pair.draft} and the target "
                f"{self.pair.target}: choose these models or another --verifier"
            )

    @classmethod
    def load(cls, name: str | Path) -> Self:
        """Load a bundled verifier by name, or one from its files (`files`). Raises ControlError."""
        known = name in bundled.verifiers()
        path = bundled.verifier_path(str(name)) if known else Path(name)
        return load("verifier", path, cls._read)

    @classmethod
    def _read(cls, arrays: Arrays, record: Record) -> Self:
        kind, features = record["kind"], record["features"]
        weight, bias = arrays["weight"], arrays["bias"]
        if kind != KIND or features not in get_args(Features):
            raise ValueError(f"there is no {kind!r} verifier that reads {features!r}")
        if weight.ndim != 1:
            raise ValueError("its layer is not a row of numbers")
        return cls(
            features=features,
            pair=TrainedPair(*(str(record[each.name]) for each in fields(TrainedPair))),
            weight=weight,
            bias=float(bias.item()),
            threshold=float(record["threshold"]),
            ratio=None if record["ratio"] is None else float(record["ratio"]),
            trained_on=dict(record["trained_on"]),
        )

    @classmethod
    def for_pair(cls, draft: str, target: str) -> Self:
        """Find the verifier for two models' fingerprints: trained on this machine, or else bundled.

        Raises ControlError if there is none. A file that cannot be read is skipped with a warning.
        """
        names: list[str | Path] = [*sorted(trained_verifiers().glob("*.json"))]
        for name in [*names, *bundled.verifiers()]:
            try:
                found = cls.load(name)
            except ControlError as error:
                log.warning("%s", error)
                continue
            if found.pair.fingerprints == (draft, target):
                return found
        raise ControlError(
            "there is no verifier for these two models: name a file with --verifier, or choose "
            "another mode"
        )


def fitting_verifier(file: str | None, draft: str, target: str) -> Verifier:
    """Load two models' verifier from `file`; find it if that is None. Raises ControlError."""
    if file is None:
        return Verifier.for_pair(draft, target)
    given = Verifier.load(Path(file))
    given.check_pair(draft, target)
    return given


def trained_verifiers() -> Path:
    """Return the user's directory of verifiers that were trained on this machine."""
    return Path(platformdirs.user_data_dir("dragonrt")) / "verifiers"


def confidences(q: NDArray[np.floating[Any]], token: int) -> NDArray[np.float32]:
    """Return inputs of a Verifier: q(x), ln q(x) and max q, for a token x drafted from `q` [V]."""
    probability = max(float(q[token]), 1e-12)  # avoids log 0
    return np.array((probability, math.log(probability), q.max()), np.float32)
