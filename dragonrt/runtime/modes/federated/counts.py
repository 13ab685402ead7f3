"""What a coordinator counts in one answer."""

from dataclasses import dataclass, field
from typing import Any

from dragonrt.runtime.modes.federated.coordination import Verified
from dragonrt.runtime.outcome import share


@dataclass(slots=True)
class Counts:
    """What happened in the rounds that decided something.

    Of the `judged` tokens, those up to the first one of a block that was refused, `accepted` stand.
    `missing` has, by the worker's name, the rounds that it took no part in.
    """

    rounds: int = 0
    drafted: int = 0
    judged: int = 0
    accepted: int = 0
    resampled: int = 0
    waited_s: float = 0.0
    missing: dict[str, int] = field(default_factory=dict)

    def add(self, verified: Verified, waited_s: float) -> None:
        """Count a round that decided something, and the seconds that it waited for uploads."""
        self.rounds += 1
        self.drafted += verified.drafted
        self.judged += verified.accepted + verified.resampled
        self.accepted += verified.accepted
        self.resampled += verified.resampled
        self.waited_s += waited_s

    def miss(self, worker: str) -> None:
        """Count a round without this worker."""
        self.missing[worker] = self.missing.get(worker, 0) + 1

    def statistics(self) -> dict[str, Any]:
        """Numbers of the coordinator's answer."""
        return {
            "acceptance": {"device": share(self.accepted, self.judged)},
            "rounds": self.rounds,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "resampled": self.resampled,
            "waited_ms": round(1000 * self.waited_s, 3),
            "missing": dict(self.missing),
        }
