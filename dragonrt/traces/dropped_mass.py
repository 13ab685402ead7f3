"""What C-SQS dropped in an answer, as its records tell it, against SQS Theorem 2."""

from dataclasses import dataclass
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
        """For an answer that begins. Raises TraceError where its settings are not C-SQS's."""
        try:
            rates = ConformalThreshold.first(
                0.0,
                opened.settings["learning_rate"],
                opened.settings["target"],
                opened.settings.get("horizon"),
            )
        except KeyError as error:
            raise TraceError(
                f"a threshold moves in an answer without the setting {error}"
            ) from None
        return cls(rates.eta, rates.alpha)

    def take(self, moved: ThresholdMoved) -> None:
        if self.threshold is None:
            self.threshold = ConformalThreshold(moved.beta, self.eta, self.alpha)
            self.first_beta = moved.beta
        self.follows = self.follows and abs(moved.beta - self.threshold.beta) <= ROUNDING
        self.threshold = self.threshold.after(moved.dropped)
        self.tokens += 1
        self.dropped += moved.dropped
        self.allowed = inf  # a threshold that learns nothing promises nothing
        if self.eta > 0:
            bound = theorem2_bound(self.tokens, self.first_beta, self.eta, self.alpha)
            self.allowed = self.tokens * bound

    def __add__(self, other: "DroppedMass") -> "DroppedMass":
        allowed = other.allowed
        if self.threshold is not None and other.goes_on_from(self.threshold):
            allowed = other.tokens * other.alpha
        return DroppedMass(
            other.eta,
            other.alpha,
            self.tokens + other.tokens,
            self.dropped + other.dropped,
            self.allowed + allowed,
            self.follows and other.follows,
            other.threshold,
            other.first_beta,
        )

    def goes_on_from(self, threshold: ConformalThreshold) -> bool:
        """Whether the first token had this threshold."""
        same_rates = (self.eta, self.alpha) == (threshold.eta, threshold.alpha)
        return same_rates and abs(self.first_beta - threshold.beta) <= ROUNDING

    @property
    def average(self) -> float:
        """Mass per token."""
        return self.dropped / self.tokens if self.tokens else 0.0

    @property
    def bound(self) -> float:
        """The most that the average may be; without tokens nothing was dropped."""
        return self.allowed / self.tokens if self.tokens else 0.0

    @property
    def holds(self) -> bool:
        """Whether it is what the theorem promises."""
        return self.follows and self.average <= self.bound + ROUNDING

    def to_json(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "average_dropped": self.average,
            "beta": None if self.threshold is None else self.threshold.beta,
            "bound": self.bound if isfinite(self.bound) else None,
            "says_nothing": self.bound >= 1,  # no token has more mass than that
            "follows": self.follows,
        }
