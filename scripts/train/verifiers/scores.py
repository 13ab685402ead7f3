"""How well a verifier tells acceptable tokens from others: ROC, AUC, η_TP and η_FP (SPRINTER)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
