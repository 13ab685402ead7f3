"""C-SQS's threshold, steered by online conformal prediction, and SQS's bound (SPEC 2).

Every token's support is X_n = {x : q(x) ≥ β_n}; β falls where more than the wanted mass α was
dropped and rises where less was (SQS Eq. (8)). β moves with the tokens that stand, so it is kept
before every drafted token and taken back with them. As the most likely token always stays, β may
rise above 1 + ηα (not so in SQS Lemma 4); Theorem 2 holds all the same, it needs only β ≥ -η(1-α).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class ConformalThreshold:
    """The threshold β of one token, and how it moves on: learning rate η, wanted dropped mass α.

    The defaults of η and α are those of SQS's experiments; there β starts anywhere.
    """

    beta: float
    eta: float = 0.001
    alpha: float = 0.0005

    @classmethod
    def first(cls, beta: float, eta: float, alpha: float, horizon: int | None) -> Self:
        """The first one; with a horizon of T tokens the rates are η/√T and α/√T (SQS App. A.3)."""
        root = 1.0 if horizon is None else math.sqrt(horizon)
        return cls(beta, eta / root, alpha / root)

    def after(self, dropped: float) -> "ConformalThreshold":
        """The next token's, where this token's support dropped that mass: SQS Eq. (8)."""
        return replace(self, beta=self.beta - self.eta * (dropped - self.alpha))


def backtrack(
    start: ConformalThreshold, dropped: Sequence[float], accepted: int
) -> ConformalThreshold:
    """The threshold of the next batch's first token: the feedback of SQS Alg. 1, lines 11 to 13.

    `start` is the threshold of this batch's first token, `dropped` the masses dropped at its
    drafted tokens, of which `accepted` stand. Only those count, and one update more for the new
    token: with the mass at its place, where one was drafted there and rejected. Behind a batch that
    stands whole its place has no mass, and the update repeats the last one's (Alg. 1, line 12)
    unless the caller, who then knows the distribution there, appends it.
    """
    threshold = start
    for mass in dropped[: accepted + 1]:
        threshold = threshold.after(mass)
    if dropped and accepted == len(dropped):
        threshold = threshold.after(dropped[-1])
    return threshold


def theorem2_bound(tokens: int, beta_1: float, eta: float, alpha: float) -> float:
    """SQS Theorem 2: the most that T ≥ 1 tokens can drop on average, α + (|β_1| + 1 + ηα)/(ηT)."""
    return alpha + (abs(beta_1) + 1 + eta * alpha) / (eta * tokens)
