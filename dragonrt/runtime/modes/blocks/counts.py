"""What the device counts in an answer of drafted blocks."""

from dataclasses import dataclass
from typing import Any

from dragonrt.runtime.outcome import share


@dataclass(slots=True)
class BlockCounts:
    """What happened in one answer. Times are seconds on the device's clock, or the cloud's word.

    `drafted` tokens went up in `blocks` blocks, in `bits` bits by the papers' formulas. Of the
    `verified` blocks with their `judged` tokens, `accepted` tokens stand, and in `resampled` blocks
    a token was refused and replaced; the tokens behind it were drafted for another text.
    """

    decided: int = 0
    blocks: int = 0
    drafted: int = 0
    bits: int = 0
    verified: int = 0
    judged: int = 0
    accepted: int = 0
    resampled: int = 0
    forwards: int = 0
    preempted: int = 0
    draft_s: float = 0.0
    verify_s: float = 0.0
    waited_s: float = 0.0
    alone_from: int | None = None

    @property
    def wasted(self) -> int:
        """Tokens that were sent and never judged: a block before them did not stand as guessed."""
        return self.drafted - self.judged

    def statistics(self) -> dict[str, Any]:
        """Numbers of the device's answer."""
        return {
            "acceptance": {"device": share(self.accepted, self.accepted + self.resampled)},
            "blocks": self.blocks,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "resampled": self.resampled,
            "resampling_rate": share(self.resampled, self.verified),
            "wasted": self.wasted,
            "bits_up": self.bits,
            "bits_per_token": round(self.bits / self.decided, 1) if self.decided else None,
            "forwards": self.forwards,
            "preempted": self.preempted,
            "draft_ms": round(1000 * self.draft_s, 3),
            "verify_ms": round(1000 * self.verify_s, 3),
            "waited_ms": round(1000 * self.waited_s, 3),
            "alone_from": self.alone_from,
        }
