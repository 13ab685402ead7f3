"""What C-SQS dropped in an answer, as its records tell it, against SQS Theorem 2."""

from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any

from dragonrt.distributions.conformal import ConformalThreshold, theorem2_bound
from dragonrt.traces.events import AnswerOpened, ThresholdMoved

ROUNDING = 1e-12


@dataclass(slots=True)
class DroppedMass:
    """The mass that `tokens` tokens dropped, and the most that the theorem allows them.

    `follows` says whether every threshold is what SQS Eq. (8) makes of the one before it: the
    theorem speaks of no other. `threshold` is the next token's. Those of several answers can be
    added: one that goes on where the one before it ended belongs to its run, another allows its
    own.
    """

    first: ConformalThreshold
    threshold: ConformalThreshold
    tokens: int = 0
    dropped: float = 0.0
    allowed: float = 0.0
    follows: bool = True

    @classmethod
    def of(cls, opened: AnswerOpened, moved: ThresholdMoved) -> "DroppedMass":
        """Return that of an answer before its first token."""
        learning_rate, target, horizon = map(
            opened.settings.get, ("learning_rate", "target", "horizon")
        )
        first = ConformalThreshold.first(moved.beta, learning_rate or 0.0, target or 0.0, horizon)
        return cls(first, first)

    def take(self, moved: ThresholdMoved) -> None:
        """Add a token."""
        first = self.first
        self.follows &= abs(moved.beta - self.threshold.beta) <= ROUNDING
        self.threshold = self.threshold.after(moved.dropped)
        self.tokens += 1
        self.dropped += moved.dropped
        self.allowed = inf  # a threshold that learns nothing promises nothing
        if first.eta > 0:
            bound = theorem2_bound(self.tokens, first.beta, first.eta, first.alpha)
            self.allowed = self.tokens * bound

    def __add__(self, other: "DroppedMass") -> "DroppedMass":
        last, first, allowed = self.threshold, other.first, other.allowed
        same_rates = (first.eta, first.alpha) == (last.eta, last.alpha)
        if same_rates and abs(first.beta - last.beta) <= ROUNDING:  # the same run
            allowed = other.tokens * first.alpha
        return replace(
            other,
            tokens=self.tokens + other.tokens,
            dropped=self.dropped + other.dropped,
            allowed=self.allowed + allowed,
            follows=self.follows and other.follows,
        )

    @property
    def holds(self) -> bool:
        """Whether the dropped mass is what the theorem promises."""
        return self.follows and self.dropped <= self.allowed + ROUNDING * self.tokens

    def to_json(self) -> dict[str, Any]:
        """Return averages over the tokens."""
        bound = self.allowed / self.tokens
        return {
            "tokens": self.tokens,
            "average_dropped": self.dropped / self.tokens,
            "beta": self.threshold.beta,
            "bound": bound if isfinite(bound) else None,
            "says_nothing": bound >= 1,  # no token has more mass than that
            "follows": self.follows,
        }
