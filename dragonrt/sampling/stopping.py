"""Rules that stop drafting and have the block verified: the baselines of SPRINTER, Table 2.

A rule is a value, evaluated after every drafted token. The text stays exact (SPEC 2) because no
rule looks ahead. It reads neither the next token nor tokens after a rejected one, whose noise is
used again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True, slots=True)
class DraftSignals:
    """Features of a drafted token, for a stopping rule.

    `entropy` is that of the draft model's distribution before any sampler, in nats; `acceptance`
    the acceptance probability that a trained head predicts.
    """

    entropy: float
    acceptance: float = 1.0


class StoppingRule(Protocol):
    """Decides how long a block becomes."""

    def stop(self, block: Sequence[DraftSignals]) -> bool:
        """Return whether to verify `block`, of at least one token, now."""

    def after(self, drafted: int, accepted: int) -> StoppingRule:
        """Return the rule for the next block, given how many drafted tokens were accepted."""


@dataclass(frozen=True, slots=True)
class SpecDecPlusPlus:
    """Stops when a rejection somewhere in the block has become likely (SpecDec++).

    P(at least one rejection) = 1 - Π a_i > `threshold`, with a_i each token's predicted acceptance,
    or at `longest` tokens (Huang et al., arXiv 2405.19715; there 0.7).
    """

    longest: int
    threshold: float = 0.7

    def stop(self, block: Sequence[DraftSignals]) -> bool:
        """Return whether a rejection is likelier than the threshold, or the block is full."""
        rejection = 1 - math.prod(token.acceptance for token in block)
        return rejection > self.threshold or len(block) >= self.longest

    def after(self, drafted: int, accepted: int) -> SpecDecPlusPlus:
        """Return the same rule."""
        return self


@dataclass(frozen=True, slots=True)
class AdaEDL:
    """Stops when entropy no longer predicts that the newest token is accepted (AdaEDL).

    1 - √(γ H(q)) approximates a lower bound of the acceptance 1 - TV(p, q) by Pinsker's inequality.
    Stops if it is below λ, the `threshold`, or at `longest` tokens (Agrawal et al., arXiv
    2410.18351; there γ = 0.2). After each block λ rises if `rate`, the moving average of the
    acceptance rate, is at most `TARGET_RATE`, else falls (Draft & Verify, Zhang et al., arXiv
    2309.08168). Unlike Draft & Verify, tokens after a rejected one do not count.
    """

    longest: int
    threshold: float = 0.5
    gamma: float = 0.2
    rate: float = 1.0

    def stop(self, block: Sequence[DraftSignals]) -> bool:
        """Return whether the newest token's bound is below the threshold, or the block is full."""
        bound = 1 - math.sqrt(self.gamma * max(0.0, block[-1].entropy))
        return bound < self.threshold or len(block) >= self.longest

    def after(self, drafted: int, accepted: int) -> AdaEDL:
        """Return the rule with the threshold and acceptance rate updated by this block."""
        verified = min(accepted + 1, drafted)
        rate = _RATE_MEMORY * self.rate + (1 - _RATE_MEMORY) * accepted / verified
        step = THRESHOLD_STEP if rate <= TARGET_RATE else -THRESHOLD_STEP
        return replace(self, rate=rate, threshold=self.threshold + (1 - _THRESHOLD_MEMORY) * step)


TARGET_RATE = 0.9
THRESHOLD_STEP = 0.01
_RATE_MEMORY = 0.5
_THRESHOLD_MEMORY = 0.9
