"""What C-SQS dropped in an answer, as its records tell it, against SQS Theorem 2."""

from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any

from dragonrt.distributions.conformal import ConformalThreshold, theorem2_bound
from dragonrt.traces.events import AnswerOpened, ThresholdMoved
from dragonrt.traces.schema import TraceError

ROUNDING = 1e-12


@dataclass(slots=True)
class DroppedMass:
    """The mass that `tokens` tokens dropped, and the most that the theorem allows them.

    `follows` says whether every threshold is what SQS Eq. (8) makes of the one before it: the
    theorem speaks of no other. `threshold` is the next token's. Those of several answers can be
    added: one that goes on where the one before it ended belongs to its run, another allows its
    own.
    """

    eta: float
    alpha: float
    tokens: int = 0
    dropped: float = 0.0
    allowed: float = 0.0
    follows: bool = True
    threshold: ConformalThreshold | None = None
    first_beta: float = 0.0

    @classmethod
    def of(cls, opened: AnswerOpened) -> "DroppedMass":
        """Begin an answer's. Raises TraceError where its settings are not C-SQS's."""
        settings = opened.settings
        try:
            rates = settings["learning_rate"], settings["target"], settings.get("horizon")
        except KeyError as error:
            raise TraceError(
                f"a threshold moves in an answer without the setting {error}"
            ) from None
        first = ConformalThreshold.first(0.0, *rates)
        return cls(first.eta, first.alpha)

    def take(self, moved: ThresholdMoved) -> None:
        """Add a token."""
        if self.threshold is None:
            self.threshold = ConformalThreshold(moved.beta, self.eta, self.alpha)
            self.first_beta = moved.beta
        self.follows &= abs(moved.beta - self.threshold.beta) <= ROUNDING
        self.threshold = self.threshold.after(moved.dropped)
        self.tokens += 1
        self.dropped += moved.dropped
        self.allowed = inf  # a threshold that learns nothing promises nothing
        if self.eta > 0:
            bound = theorem2_bound(self.tokens, self.first_beta, self.eta, self.alpha)
            self.allowed = self.tokens * bound

    def __add__(self, other: "DroppedMass") -> "DroppedMass":
        last, allowed = self.threshold, other.allowed
        same_rates = last is not None and (other.eta, other.alpha) == (last.eta, last.alpha)
        if last and same_rates and abs(other.first_beta - last.beta) <= ROUNDING:  # the same run
            allowed = other.tokens * other.alpha
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
        """Return averages over the tokens; without tokens nothing was dropped."""
        bound = self.allowed / self.tokens if self.tokens else 0.0
        return {
            "tokens": self.tokens,
            "average_dropped": self.dropped / self.tokens if self.tokens else 0.0,
            "beta": None if self.threshold is None else self.threshold.beta,
            "bound": bound if isfinite(bound) else None,
            "says_nothing": bound >= 1,  # no token has more mass than that
            "follows": self.follows,
        }
