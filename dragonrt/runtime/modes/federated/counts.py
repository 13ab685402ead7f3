"""What a coordinator counts in one answer."""

from dataclasses import dataclass, field
from typing import Any

from dragonrt.runtime.outcome import share


@dataclass(slots=True)
class Counts:
    """`missing` has, by the worker's name, the rounds that it took no part in."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    resampled: int = 0
    late_uploads: int = 0
    waited_s: float = 0.0
    missing: dict[str, int] = field(default_factory=dict)

    def statistics(self) -> dict[str, Any]:
        """Numbers of the coordinator's answer."""
        return {
            "acceptance": {"device": share(self.accepted, self.drafted)},
            "rounds": self.rounds,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "resampled": self.resampled,
            "late_uploads": self.late_uploads,
            "waited_ms": round(1000 * self.waited_s, 3),
            "missing": dict(self.missing),
        }
