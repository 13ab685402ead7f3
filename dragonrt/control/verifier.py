"""A trained head on a draft model predicts whether the target accepts a token (SPEC section 4)."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Protocol, Self, get_args

import numpy as np
import platformdirs
from numpy.typing import NDArray

from dragonrt import bundled
from dragonrt.control.artefact import Arrays, Record, load
from dragonrt.errors import ControlError

log = logging.getLogger("dragonrt")

KIND = "sprinter"
"""The prediction for a token x drafted from q, if p is the target's distribution: q(x)/p(x) ≤ λ
(SPRINTER section 3.2). Files name it."""

Features = Literal["hidden", "hidden+confidence"]
"""hidden: the draft model's last hidden state of the token before x, from which q was computed.
hidden+confidence: that, and the `confidences` of x."""


class TokenVerifier(Protocol):
    """A prediction of the target's verdict on a drafted token."""

    @property
    def threshold(self) -> float:
        """τ of a sprinter whose settings have none."""

    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        """Return how likely `token` is accepted, given the draft model's `hidden` and `q` [V]."""


@dataclass(frozen=True, slots=True)
class TrainedPair:
    """Names and fingerprints of the models that a verifier is for."""

    draft: str
    target: str
    draft_fingerprint: str
    target_fingerprint: str

    @property
    def fingerprints(self) -> tuple[str, str]:
        """Return the fingerprints of draft model and target."""
        return self.draft_fingerprint, self.target_fingerprint


@dataclass(frozen=True, slots=True, eq=False)
class Verifier:
    """σ(w · f + b) of the features f of a drafted token.

    Attributes:
        weight: w, float32 [features].
        threshold: τ; below this probability a token is expected to be rejected by the target.
        ratio: λ of the labels.
        trained_on: its training data, and its scores on held-out text.
    """

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
        """Predict the probability that `token`, drafted from `q` [V], is accepted.

        `hidden` [hidden] is the input of the draft model's output layer for `q`, which is its
        distribution before any sampler.
        """
        if self.features == "hidden+confidence":
            hidden = np.concatenate((hidden, confidences(q, token)))
        logit = float(self.weight @ hidden) + self.bias
        return (1 + math.tanh(logit / 2)) / 2  # the sigmoid, of any logit

    def check_pair(self, draft_fingerprint: str, target_fingerprint: str) -> None:
        """Raise ControlError if it was trained for another draft model or another target."""
        if (draft_fingerprint, target_fingerprint) != self.pair.fingerprints:
            raise ControlError(
                f"this verifier was trained for drafts of {self.pair.draft} and the target "
                f"{self.pair.target}: choose these models or another --verifier"
            )

    @classmethod
    def load(cls, name: str | Path) -> Self:
        """Read a bundled verifier by its name, or either of two files. Raises ControlError."""
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
        """Return that of these fingerprints, trained locally or else bundled; or ControlError.

        A file that cannot be read is skipped with a warning: it may be another pair's.
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
    """Return the file's verifier, or that of these fingerprints. ControlError if none fits."""
    if file is None:
        return Verifier.for_pair(draft, target)
    given = Verifier.load(Path(file))
    given.check_pair(draft, target)
    return given


def trained_verifiers() -> Path:
    """Return the directory of locally trained verifiers."""
    return Path(platformdirs.user_data_dir("dragonrt")) / "verifiers"


def confidences(q: NDArray[np.floating[Any]], token: int) -> NDArray[np.float32]:
    """Return q(x), ln q(x) and max q of a token x drafted from `q` [V], in float32."""
    probability = max(float(q[token]), 1e-12)  # avoids log 0
    return np.array((probability, math.log(probability), q.max()), np.float32)
