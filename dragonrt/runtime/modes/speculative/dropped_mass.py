"""What C-SQS dropped in an answer, as its trace tells it, against SQS Theorem 2."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dragonrt.distributions.conformal import ConformalThreshold, theorem2_bound

ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class DroppedMass:
    """The average mass that the tokens of an answer dropped, and what the theorem allows.

    `follows` says whether every threshold is what SQS Eq. (8) makes of the one before it: the
    theorem speaks of no other.
    """

    tokens: int
    average: float
    bound: float
    follows: bool

    @property
    def holds(self) -> bool:
        """Whether the trace is one that the theorem promises."""
        return self.follows and self.average <= self.bound + ROUNDING


def dropped_mass(events: Iterable[dict[str, Any]]) -> DroppedMass | None:
    """Of the device's events of one answer; None where no token moved a threshold."""
    threshold: ConformalThreshold | None = None
    settings: dict[str, Any] = {}
    first = total = 0.0
    tokens, follows = 0, True
    for event in events:
        if event["event"] == "open":
            settings = event
        if event["event"] != "threshold":
            continue
        beta, dropped = event["beta"], event["dropped"]
        if threshold is None:
            threshold = ConformalThreshold(beta, settings["learning_rate"], settings["target"])
            first = beta
        follows = follows and abs(beta - threshold.beta) <= ROUNDING
        threshold = threshold.after(dropped)
        tokens, total = tokens + 1, total + dropped
    if threshold is None:
        return None
    bound = theorem2_bound(tokens, first, threshold.eta, threshold.alpha)
    return DroppedMass(tokens, total / tokens, bound, follows)
