"""How much the device's documents made of a token that was decided (SPEC 1.10). Pure.

Realised evidence is log2 p_t(x)/q_t(x): by how much the target made the token likelier than the
cloud's distribution alone. Leave-one-out evidence of a file is log2 p_t(x)/p_t⁻(x), where p_t⁻ is
the target without that file; with a row for each document nothing has to be computed again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_BITS = 20.0
"""What one token counts at most, as where a codec cut the cloud's probability off."""


def evidence_bits(p: float, q: float) -> float:
    """log2 p/q, at most MOST_BITS and at least their negative."""
    if p <= 0 or q <= 0:
        return MOST_BITS if p > q else 0.0
    return max(-MOST_BITS, min(MOST_BITS, math.log2(p / q)))


@dataclass(slots=True)
class Moved:
    """What moved the decided text, as far as one side knows: by token what made it likelier.

    Each number of bits is the sum over the tokens that became likelier; what made another token
    less likely is not held against it.
    """

    _files: dict[int, Sequence[float]] = field(default_factory=dict)
    _other: dict[int, float] = field(default_factory=dict)

    def decide(self, step: int, files: Sequence[float], other: float | None = None) -> None:
        """Note the evidence of a step's token: of each own file, and of the other side if known.

        Replaces what was noted of the step before.
        """
        self._files[step] = files
        if other is not None:
            self._other[step] = other

    @property
    def files(self) -> list[float]:
        """Bits of each own file; empty if nothing is known of any."""
        longest = max(map(len, self._files.values()), default=0)
        return [
            math.fsum(max(0.0, bits[file]) for bits in self._files.values() if file < len(bits))
            for file in range(longest)
        ]

    @property
    def other(self) -> float | None:
        """Bits of all that the other side knows, against this side alone; None if not known."""
        return math.fsum(max(0.0, bits) for bits in self._other.values()) if self._other else None
