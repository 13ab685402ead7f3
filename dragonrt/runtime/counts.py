"""What one side counts in a generation of two sides that draft."""

from dataclasses import dataclass, field
from typing import Any

from dragonrt.runtime.outcome import share


@dataclass(slots=True)
class Counts:
    """What happened in one generation, on this side."""

    own_accepted: int = 0
    own_compared: int = 0
    other_accepted: int = 0
    other_compared: int = 0
    forwards: int = 0
    preempted: int = 0
    rollbacks: int = 0
    switches: int = 0
    divergences: int = 0
    alone_from: int | None = None
    waited_s: dict[str, float] = field(default_factory=dict)

    def statistics(self) -> dict[str, Any]:
        """Numbers of the device's answer."""
        return {
            "acceptance": {
                "device": share(self.own_accepted, self.own_compared),
                "cloud": share(self.other_accepted, self.other_compared),
            },
            "forwards": self.forwards,
            "preempted": self.preempted,
            "rollbacks": self.rollbacks,
            "switches": self.switches,
            "divergences": self.divergences,
            "alone_from": self.alone_from,
        }
