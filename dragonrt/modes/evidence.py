"""How much the device's documents made of a token that was decided (SPEC 1.10). Pure.

Realised evidence is log2 p_t(x)/q_t(x): by how much the target made the token likelier than the
cloud's distribution alone. Leave-one-out evidence of a file is log2 p_t(x)/p_t⁻(x), where p_t⁻ is
the target without that file; with a row for each document nothing has to be computed again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution
from dragonrt.modes.mode import Said

MOST_BITS = 20.0
"""What one token counts at most, as where a codec cut the cloud's probability off."""

LEAST = 1e-4
"""Tokens that a side gives less than this are not kept: no file can have made them likely."""


def evidence_bits(p: float, q: float) -> float:
    """log2 p/q, at most MOST_BITS and at least their negative."""
    if p <= 0 or q <= 0:
        return MOST_BITS if p > q else 0.0
    return max(-MOST_BITS, min(MOST_BITS, math.log2(p / q)))


@dataclass(frozen=True, slots=True)
class FileShares:
    """What each file gave to what a side says next: its weight ω, and ω p(x) of the likely tokens.

    `tokens` int64 [K] increasing, `weights` float64 [files], `shares` float64 [files, K].
    """

    tokens: NDArray[np.int64]
    weights: NDArray[np.float64]
    shares: NDArray[np.float64]

    @classmethod
    def of(cls, said: Said, files: Sequence[int], p: Distribution) -> "FileShares | None":
        """Of the rows that a model read; row n belongs to the file `files[n]`. None without any."""
        if not files:
            return None
        tokens = p.ids[p.probabilities >= LEAST]
        member = np.equal.outer(np.arange(max(files) + 1), np.asarray(files)).astype(np.float64)
        return cls(tokens, member @ said.weights, member @ said.shares(tokens))

    def without_each(self, token: int, weight: float, q: float) -> tuple[float, ...]:
        """The leave-one-out evidence in bits of each file.

        `weight` is η of this side, `q` the other side's probability of the token.
        """
        place = int(self.tokens.searchsorted(token))
        known = place < self.tokens.size and self.tokens[place] == token
        given = weight * (self.shares[:, place] if known else np.zeros(len(self.weights)))
        p = float(given.sum()) + (1 - weight) * q
        return tuple(
            evidence_bits(p, (p - part) / left) if (left := 1 - weight * own) > 0 else 0.0
            for part, own in zip(given.tolist(), self.weights.tolist(), strict=True)
        )
