"""When to stop drafting and have the block verified: the baselines of SPRINTER, Table 2.

A rule is a value and is asked after every drafted token. The text stays exact (SPEC 2) because no
rule looks ahead: neither at the token that would be drafted next nor, from one block to the next,
at tokens behind a refused one, whose noise is used again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True, slots=True)
class DraftSignals:
    """What is known of a token when it has been drafted.

    `entropy` is that of the draft model's distribution before any sampler, in nats; `acceptance`
    the probability, predicted by a trained head, that the token will stand.
    """

    entropy: float
    acceptance: float = 1.0


class StoppingRule(Protocol):
    """Decides how long a block becomes."""

    def stop(self, block: Sequence[DraftSignals]) -> bool:
        """Whether `block`, of at least one token, is to be verified now."""

    def after(self, drafted: int, accepted: int) -> StoppingRule:
        """The rule for the next block, when so many of the drafted tokens were accepted."""


@dataclass(frozen=True, slots=True)
class SpecDecPlusPlus:
    """Stops when a rejection somewhere in the block has become likely (SpecDec++).

    P(at least one rejection) = 1 - Π a_i > `threshold`, with a_i the predicted acceptance of each
    token (Huang et al., arXiv 2405.19715; there 0.7); or at `longest` tokens.
    """

    longest: int
    threshold: float = 0.7

    def stop(self, block: Sequence[DraftSignals]) -> bool:
        """Whether a rejection is likelier than the threshold."""
        rejection = 1 - math.prod(token.acceptance for token in block)
        return rejection > self.threshold or len(block) >= self.longest

    def after(self, drafted: int, accepted: int) -> SpecDecPlusPlus:
        """The same rule."""
        return self


@dataclass(frozen=True, slots=True)
class AdaEDL:
    """Stops when entropy no longer promises that the newest token stands (AdaEDL).

    1 - √(γ H(q)), which approximates a lower bound of the acceptance 1 - TV(p, q) by Pinsker's
    inequality, falls below λ, the `threshold`; or at `longest` tokens (Agrawal et al., arXiv
    2410.18351; there γ = 0.2). After every block λ follows `rate`, the moving average of the
    acceptance rate, as the threshold of Draft & Verify does (Zhang et al., arXiv 2309.08168): up
    while the rate is at most `TARGET_RATE`, else down. Tokens behind a refused one, which Draft &
    Verify counts as refused, do not count here.
    """

    longest: int
    threshold: float = 0.5
    gamma: float = 0.2
    rate: float = 1.0

    def stop(self, block: Sequence[DraftSignals]) -> bool:
        """Whether the bound of the newest token is below the threshold."""
        bound = 1 - math.sqrt(self.gamma * max(0.0, block[-1].entropy))
        return bound < self.threshold or len(block) >= self.longest

    def after(self, drafted: int, accepted: int) -> AdaEDL:
        """The rule with the threshold and the acceptance rate that this block leads to."""
        verified = min(accepted + 1, drafted)
        rate = _RATE_MEMORY * self.rate + (1 - _RATE_MEMORY) * accepted / verified
        step = THRESHOLD_STEP if rate <= TARGET_RATE else -THRESHOLD_STEP
        return replace(self, rate=rate, threshold=self.threshold + (1 - _THRESHOLD_MEMORY) * step)


TARGET_RATE = 0.9
THRESHOLD_STEP = 0.01
_RATE_MEMORY = 0.5
_THRESHOLD_MEMORY = 0.9
