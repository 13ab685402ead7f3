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
from dragonrt.distributions.distribution import FEW
from dragonrt.modes.mode import Said

MOST_BITS = 20.0
"""What one token counts at most, as where a codec cut the cloud's probability off."""

LEAST = 1e-4
"""Of many tokens those that a side gives less are not kept: no file can have made them likely."""


def evidence_bits(p: float, q: float) -> float:
    """log2 p/q, at most MOST_BITS and at least their negative."""
    if p <= 0 or q <= 0:
        return MOST_BITS if p > q else 0.0
    return max(-MOST_BITS, min(MOST_BITS, math.log2(p / q)))


@dataclass(frozen=True, slots=True)
class RowShares:
    """What each row gave to what a side says next: its weight ω, and ω p(x) of the likely tokens.

    Row n read a document of the own file `files[n]`. `tokens` int64 [K] increasing, `weights`
    float64 [rows], `shares` float64 [rows, K]. What is asked of them is computed for a decided
    token alone.
    """

    files: Sequence[int]
    tokens: NDArray[np.int64]
    weights: NDArray[np.float64]
    shares: NDArray[np.float64]

    @classmethod
    def of(cls, said: Said, files: Sequence[int], token: int, p: Distribution) -> "RowShares":
        """Of the rows that a model read; `token` was drafted from `p`."""
        tokens = p.ids
        if len(p) > FEW:
            tokens = tokens[p.probabilities >= min(LEAST, p.probability(token))]
        return cls(files, tokens, said.weights, said.shares(tokens))

    def carrier(self, token: int) -> int:
        """The row, and so the document, that carried most of the token's probability."""
        return int(self._given(token).argmax())

    def without_each(self, token: int, weight: float, q: float) -> tuple[float, ...]:
        """The leave-one-out evidence in bits of each file.

        `weight` is η of this side, `q` the other side's probability of the token.
        """
        given, own = ([0.0] * (max(self.files, default=-1) + 1) for _ in range(2))
        parts = zip(self.files, self._given(token).tolist(), self.weights.tolist(), strict=False)
        for file, part, row_weight in parts:
            given[file] += weight * part
            own[file] += weight * row_weight
        p = math.fsum(given) + (1 - weight) * q
        return tuple(
            evidence_bits(p, (p - part) / (1 - share)) if share < 1 else 0.0
            for part, share in zip(given, own, strict=True)
        )

    def _given(self, token: int) -> NDArray[np.float64]:
        place = int(self.tokens.searchsorted(token))
        if place < self.tokens.size and self.tokens[place] == token:
            return self.shares[:, place]
        return np.zeros(len(self.weights))
