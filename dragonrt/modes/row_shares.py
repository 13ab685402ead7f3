"""What each document gave to the probability of a token: each has a row of its own. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution
from dragonrt.distributions.distribution import FEW
from dragonrt.modes.evidence import evidence_bits
from dragonrt.modes.mode import Prediction

LEAST = 1e-4
"""Of many tokens those that a side gives less are not kept: no file can have made them likely."""


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
    def of(cls, said: Prediction, files: Sequence[int], token: int, p: Distribution) -> "RowShares":
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
            evidence_bits(p, (p - part) / (1 - share) if share < 1 else 0.0)
            for part, share in zip(given, own, strict=True)
        )

    def _given(self, token: int) -> NDArray[np.float64]:
        place = int(self.tokens.searchsorted(token))
        if place < self.tokens.size and self.tokens[place] == token:
            return self.shares[:, place]
        return np.zeros(len(self.weights))


def files_alone(said: Prediction, files: Sequence[int], token: int) -> tuple[float, ...]:
    """Return the leave-one-out evidence in bits of each file for a token that its side decided."""
    given = said.shares(np.array([token]))
    return RowShares(files, np.array([token]), said.weights, given).without_each(token, 1.0, 0.0)
