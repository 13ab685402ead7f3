"""Training a verifier for a pair of models: collect, fit, judge on held-out text (SPRINTER 3.2)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.control.verifier import Features, Kind, TrainedPair, Verifier
from dragonrt.errors import TrainingError
from scripts.train.verifiers.fit import Labelled, LogisticLayer, fit
from scripts.train.verifiers.models import BatchedPair
from scripts.train.verifiers.samples import KINDS, Samples, collect
from scripts.train.verifiers.texts import SHARES, Part, Texts

REFUSAL_WEIGHT = 6.0
"""What SpecDec++ found best: a refused token counts six times as much in the loss."""

FEWEST_SAMPLES = 400
"""Below this the smallest part has no sample of each kind and label to speak of."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class VerifierPlan:
    """What is trained, and how. `samples` counts those of all parts together.

    `ratio` is λ: tokens with q(x)/p(x) ≤ λ are acceptable, to a sprinter that learns it and in the
    scores of both kinds.

    Raises TrainingError for values that make no sense.
    """

    kind: Kind = "sprinter"
    features: Features = "hidden+confidence"
    ratio: float = 1.2
    threshold: float = 0.5
    samples: int = 30_000
    epochs: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.ratio < float("inf"):
            raise TrainingError(f"lambda {self.ratio} must be a finite number above 0")
        if not 0 < self.threshold < 1:
            raise TrainingError(f"threshold {self.threshold} must lie between 0 and 1")
        if self.samples < FEWEST_SAMPLES:
            raise TrainingError(f"{self.samples} samples are too few: take {FEWEST_SAMPLES}")


CURVE_POINTS = 51
"""Points of a stored ROC curve."""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Predicted probabilities float64 [n], and whether each token was acceptable, bool [n].

    Both sorts must be there.
    """

    probabilities: NDArray[np.float64]
    acceptable: NDArray[np.bool_]

    def rates(self, threshold: float) -> tuple[float, float]:
        """η_TP and η_FP: how often acceptable tokens, and others, are at or above the threshold."""
        passed = self.probabilities >= threshold
        return float(passed[self.acceptable].mean()), float(passed[~self.acceptable].mean())

    def auc(self) -> float:
        """The probability that an acceptable token scores above another one; ties count half."""
        from sklearn.metrics import roc_auc_score

        return float(roc_auc_score(self.acceptable, self.probabilities))

    def curve(self) -> list[tuple[float, ...]]:
        """(threshold, η_TP, η_FP) at `CURVE_POINTS` thresholds from 0 to 1."""
        return [
            (round(threshold, 4), *(round(rate, 4) for rate in self.rates(threshold)))
            for threshold in np.linspace(0, 1, CURVE_POINTS).tolist()
        ]

    def to_json(self, threshold: float) -> dict[str, Any]:
        """The scores that are kept beside a verifier."""
        eta_tp, eta_fp = self.rates(threshold)
        return {
            "samples": len(self.acceptable),
            "acceptable": float(self.acceptable.mean()),
            "auc": self.auc(),
            "eta_tp": eta_tp,
            "eta_fp": eta_fp,
        }


Parts = dict[Part, Samples]


def collect_parts(
    pair: BatchedPair, texts: Texts, samples: int, seed: int, progress: Progress
) -> Parts:
    """Samples of each part of the texts, each with an equal share of the four kinds of prefix."""
    parts: Parts = {}
    for number, (part, share) in enumerate(SHARES.items()):
        parts[part] = collect(
            pair,
            texts[part],
            round(share * samples),
            len(SHARES) * seed + number,
            partial(progress, part),
        )
    return parts


def train_verifier(pair: BatchedPair, parts: Parts, plan: VerifierPlan, corpus: str) -> Verifier:
    """A verifier fitted to the training part, with its scores on the test part.

    `corpus` names what the samples come from. Raises TrainingError if all samples of a part are of
    one sort.
    """
    with_confidence = plan.features == "hidden+confidence"
    data = {
        part: Labelled(samples.features(with_confidence), _labels(samples, plan))
        for part, samples in parts.items()
    }
    weight = REFUSAL_WEIGHT if plan.kind == "specdec++" else 1.0
    layer = fit(data["training"], data["validation"], plan.epochs, plan.seed, weight)
    test = parts["test"]
    scores = _scores(layer, test, plan)
    return Verifier(
        kind=plan.kind,
        features=plan.features,
        pair=TrainedPair(
            pair.draft.name, pair.target.name, pair.draft.fingerprint, pair.target.fingerprint
        ),
        weight=layer.weight,
        bias=layer.bias,
        threshold=plan.threshold,
        ratio=plan.ratio if plan.kind == "sprinter" else None,
        trained_on={
            "corpus": corpus,
            "samples": len(parts["training"]),
            "seed": plan.seed,
            "epochs": layer.epochs,
            "test": {"ratio": plan.ratio, **scores.to_json(plan.threshold)},
            "auc_by_prefix": {
                name: _scores(layer, test.only(test.kind == kind), plan).auc()
                for kind, name in enumerate(KINDS)
            },
            "roc": scores.curve(),
        },
    )


def _labels(samples: Samples, plan: VerifierPlan) -> NDArray[np.float32]:
    if plan.kind == "specdec++":
        return samples.acceptance()
    return samples.acceptable(plan.ratio).astype(np.float32)


def _scores(layer: LogisticLayer, samples: Samples, plan: VerifierPlan) -> Scores:
    features = samples.features(plan.features == "hidden+confidence")
    acceptable = samples.acceptable(plan.ratio)
    if acceptable.all() or not acceptable.any():
        raise TrainingError(
            "the target would treat all drafted tokens of the held-out text alike: "
            "use more text, or another lambda"
        )
    return Scores(layer.probabilities(features), acceptable)
