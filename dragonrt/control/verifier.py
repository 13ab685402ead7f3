"""A trained head on a draft model predicts whether the target accepts a token (SPEC section 4).

One linear layer and a sigmoid. Its record says which pair of models it was trained for, how, and
its scores on held-out text.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import platformdirs
from numpy.typing import NDArray

from dragonrt import bundled
from dragonrt.control.artefact import Arrays, Record, finite, load
from dragonrt.errors import ControlError

Kind = Literal["sprinter", "specdec++"]
"""What a head predicts of a token x drafted from q, where p is the target's distribution.

sprinter: that q(x)/p(x) ≤ λ (SPRINTER section 3.2). specdec++: that it stands, which it does with
probability min(1, p(x)/q(x)) (SpecDec++, arXiv 2405.19715).
"""

Features = Literal["hidden", "hidden+confidence"]
"""What a head reads. hidden: the draft model's last hidden state of the token before x, from which
q was computed. hidden+confidence: that, and the `CONFIDENCES` of x."""

CONFIDENCES = ("q(x)", "log q(x)", "max q")

_SMALLEST = 1e-12  # a probability below this counts as this in a logarithm


@dataclass(frozen=True, slots=True)
class TrainedPair:
    """Names and fingerprints of the models that a verifier is for."""

    draft: str
    target: str
    draft_fingerprint: str
    target_fingerprint: str


@dataclass(frozen=True, slots=True, eq=False)
class Verifier:
    """σ(w · f + b) of the features f of a drafted token.

    Attributes:
        kind: what is predicted.
        features: what is read.
        pair: the models it was trained for.
        weight: w, float32 [features].
        bias: b.
        threshold: τ, below which a token is taken for one that the target would refuse.
        ratio: λ of the labels; only a sprinter has one.
        trained_on: from what it was made, and its scores on held-out text.
    """

    kind: Kind
    features: Features
    pair: TrainedPair
    weight: NDArray[np.float32]
    bias: float
    threshold: float = 0.5
    ratio: float | None = None
    trained_on: Mapping[str, Any] = field(default_factory=dict)

    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        """Predict the probability that `token`, drafted from `q` [V], is one to keep.

        `hidden` [hidden] is the input of the draft model's output layer for `q`, which is its
        distribution before any sampler.
        """
        read = hidden
        if self.features == "hidden+confidence":
            read = np.concatenate((hidden, confidences(q, token)))
        logit = float(self.weight @ read) + self.bias
        return (1 + math.tanh(logit / 2)) / 2  # the sigmoid, of any logit

    def check_pair(self, draft_fingerprint: str, target_fingerprint: str) -> None:
        """Raise ControlError if it was trained for another draft model or another target."""
        for part, expected, given in (
            (f"the draft model {self.pair.draft}", self.pair.draft_fingerprint, draft_fingerprint),
            (f"the target {self.pair.target}", self.pair.target_fingerprint, target_fingerprint),
        ):
            if given != expected:
                raise ControlError(
                    f"this verifier was trained for {part}, not for the model with fingerprint "
                    f"{given[:8]}…: train one with `scripts/train/run verifier`"
                )

    @classmethod
    def load(cls, name: str | Path) -> Self:
        """Read the two files: a bundled verifier's name, or a path (of either file, or of both).

        Raises ControlError with one line that says what is wrong with the files.
        """
        bundled_one = name in bundled.verifiers()
        path = bundled.verifier_path(str(name)) if bundled_one else Path(name)
        return load("verifier", path, cls._read)

    @classmethod
    def _read(cls, arrays: Arrays, record: Record) -> Self:
        pair = [str(record[field.name]) for field in fields(TrainedPair)]
        return cls(
            kind=_one_of(record["kind"], get_args(Kind)),
            features=_one_of(record["features"], get_args(Features)),
            pair=TrainedPair(*pair),
            weight=_row(arrays["weight"]),
            bias=float(_row(arrays["bias"]).item()),
            threshold=float(record["threshold"]),
            ratio=None if record["ratio"] is None else float(record["ratio"]),
            trained_on=dict(record["trained_on"]),
        )

    @classmethod
    def for_pair(cls, draft_fingerprint: str, target_fingerprint: str, kind: Kind) -> Self:
        """The verifier of this kind for these models: trained here, or else bundled.

        Raises ControlError if there is none.
        """
        trained_here = sorted(trained_verifiers().glob("*.json"))
        names: list[str | Path] = [*trained_here, *bundled.verifiers()]
        for name in names:
            found = cls.load(name)
            known = (found.pair.draft_fingerprint, found.pair.target_fingerprint)
            if found.kind == kind and known == (draft_fingerprint, target_fingerprint):
                return found
        raise ControlError(
            f"there is no {kind} verifier for these two models: train one with `scripts/train/run "
            f"verifier --kind {kind} --corpus TEXT`, and their --draft and --target"
        )


def trained_verifiers() -> Path:
    """The directory of the verifiers that were trained here, and are found by their models."""
    return Path(platformdirs.user_data_dir("dragonrt")) / "verifiers"


def confidences(q: NDArray[np.floating[Any]], token: int) -> NDArray[np.float32]:
    """The `CONFIDENCES` of a token drafted from `q` [V]: float32, logarithms natural."""
    probability = max(float(q[token]), _SMALLEST)
    return np.array((probability, math.log(probability), q.max()), np.float32)


def _one_of(value: Any, choices: tuple[Any, ...]) -> Any:
    if value not in choices:
        raise ValueError(f"{value!r} is none of {', '.join(choices)}")
    return value


def _row(array: NDArray[Any]) -> NDArray[np.float32]:
    if array.ndim != 1:
        raise ValueError("its layer is not a row of numbers")
    return finite(array)
