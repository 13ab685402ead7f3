"""C-SQS's threshold, controlled by online conformal prediction, and SQS's bound (SPEC 2).

Every token's support is X_n = {x : q(x) ≥ β_n}. β falls if more than the wanted mass α was dropped,
and rises if less was (SQS Eq. (8)). Only accepted tokens move β, so it is stored before each
drafted token and rolled back with it. As the most likely token always stays, β may rise above 1 +
ηα (unlike SQS Lemma 4). Theorem 2 still holds: it needs only β ≥ -η(1-α).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class ConformalThreshold:
    """The threshold β of one token, with the learning rate η and the wanted dropped mass α.

    The defaults of η and α are those of SQS's experiments, which allow any initial β.
    """

    beta: float
    eta: float = 0.001
    alpha: float = 0.0005

    @classmethod
    def first(cls, beta: float, eta: float, alpha: float, horizon: int | None) -> Self:
        """Return the first threshold; a `horizon` T divides the rates by √T (SQS App. A.3)."""
        root = 1.0 if horizon is None else math.sqrt(horizon)
        return cls(beta, eta / root, alpha / root)

    def after(self, dropped: float) -> "ConformalThreshold":
        """Return the next token's threshold, given this token's dropped mass: SQS Eq. (8)."""
        return replace(self, beta=self.beta - self.eta * (dropped - self.alpha))


def backtrack(
    start: ConformalThreshold, dropped: Sequence[float], accepted: int
) -> ConformalThreshold:
    """Return the threshold of the next batch's first token (SQS Alg. 1, lines 11 to 13).

    `start` is the threshold of this batch's first token, `dropped` the mass dropped at each drafted
    token. The first `accepted` masses count, and one more for the new token. If a draft was
    rejected, that is its mass. If all were accepted, the last mass counts twice (line 12), unless
    the caller knows the new token's mass and appends it.
    """
    threshold = start
    for mass in dropped[: accepted + 1]:
        threshold = threshold.after(mass)
    if dropped and accepted == len(dropped):
        threshold = threshold.after(dropped[-1])
    return threshold


def theorem2_bound(tokens: int, beta_1: float, eta: float, alpha: float) -> float:
    """Return α + (|β_1| + 1 + ηα)/(ηT), the most that T tokens drop on average (SQS Thm. 2)."""
    return alpha + (abs(beta_1) + 1 + eta * alpha) / (eta * tokens)
