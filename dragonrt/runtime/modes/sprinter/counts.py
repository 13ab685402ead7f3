"""What the device counts in an answer by approximate verification."""

from dataclasses import dataclass
from typing import Any

from dragonrt.runtime.modes.blocks import BlockCounts
from dragonrt.runtime.outcome import share


@dataclass(slots=True)
class SprinterCounts(BlockCounts):
    """BlockCounts of blocks that hold one token to be verified each.

    `unverified` tokens were shown on the verifier's word, or with the cloud away, and stand without
    the target's verdict. Of them, the target has not even read the last `unread` ones.
    """

    unverified: int = 0
    unread: int = 0

    def statistics(self) -> dict[str, Any]:
        """Numbers of the device's answer; acceptance is that of SPRINTER's Theorem 7."""
        stand, drafted = self.unverified + self.accepted, self.unverified + self.judged
        return {
            **BlockCounts.statistics(self),
            "acceptance": {"device": share(stand, drafted)},
            "drafted": drafted,
            "accepted": stand,
            "unverified": self.unverified,
            "unread": self.unread,
            "target_calls": self.verified,
            "tokens_per_target_call": (
                round(1 + self.unverified / self.verified, 2) if self.verified else None
            ),
        }
