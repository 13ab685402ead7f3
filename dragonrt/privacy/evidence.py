"""Evidence: how much each side's documents contributed to a decided token (SPEC 1.10). Pure.

Realised evidence is log2 p_t(x)/q_t(x): by how much the target p_t made the token likelier than
q_t, the cloud's distribution alone. Leave-one-out evidence of a file is log2 p_t(x)/p_t⁻(x), where
p_t⁻ is the target without that file. Each document has its own row, so nothing is recomputed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution
from dragonrt.distributions.distribution import FEW

MOST_BITS = 20.0
"""The most bits of one token, as when a codec dropped the cloud's probability."""
LEAST = 1e-4
"""Tokens with a smaller probability are not kept: no file made them likely."""


def evidence_bits(p: float, q: float) -> float:
    """Return log2 p/q, limited to ±20 bits; 20 if only q is 0, and 0 if p is 0."""
    if p <= 0 or q <= 0:
        return MOST_BITS if p > q else 0.0
    return max(-MOST_BITS, min(MOST_BITS, math.log2(p / q)))


def likely(p: Distribution, token: int) -> NDArray[np.int64]:
    """Return the ids of `p` whose evidence is kept: all if few, or the likely ones and `token`."""
    if p.ids.size <= FEW:
        return p.ids
    return p.ids[p.probabilities >= min(LEAST, p.probability(token))]


@dataclass(frozen=True, slots=True)
class RowShares:
    """What each row adds to a prediction: its weight ω, and its share ω p(x) of K likely tokens.

    Row n read one document, of this side's file number `files[n]`. `tokens` is int64 [K],
    increasing; `weights` is float64 [rows], `shares` float64 [rows, K].
    """

    files: Sequence[int]
    tokens: NDArray[np.int64]
    weights: NDArray[np.float64]
    shares: NDArray[np.float64]

    def carrier(self, token: int) -> int:
        """Return the index of the document's row that adds most to the token's probability."""
        return int(self._given(token).argmax())

    def without_each(self, token: int, weight: float, q: float) -> tuple[float, ...]:
        """Return the leave-one-out evidence of each of this side's files for `token`, in bits.

        `weight` is this side's in the mixture, `q` the other side's probability of the token.
        """
        given = [0.0] * (max(self.files, default=-1) + 1)
        own = given.copy()
        parts = zip(self.files, self._given(token).tolist(), self.weights.tolist(), strict=False)
        for file, part, row_weight in parts:
            given[file] += weight * part
            own[file] += weight * row_weight
        p = math.fsum(given) + (1 - weight) * q
        found: tuple[float, ...] = ()
        for part, share in zip(given, own, strict=True):
            found += (evidence_bits(p, (p - part) / (1 - share) if share < 1 else 0.0),)
        return found

    def _given(self, token: int) -> NDArray[np.float64]:
        place = int(self.tokens.searchsorted(token))
        if place < self.tokens.size and self.tokens[place] == token:
            return self.shares[:, place]
        return np.zeros(len(self.weights))


@dataclass(frozen=True, slots=True)
class SideDraft:
    """One side's draft of the next token after one prefix.

    Attributes:
        payload: the encoded distribution; `distribution` is it decoded, None until it is needed.
        relevance: h̃, the log-sum-exp of the side's document relevances.
        kept: κ, the logarithm of the share of its weight that the side keeps in a value.
        decode_s: the seconds of the forward.
        rows: what each document of this side added; None for the other side's draft.
    """

    step: int
    prefix_hash: int
    token: int
    payload: bytes
    relevance: float
    decode_s: float
    distribution: Distribution | None = None
    rows: RowShares | None = None
    kept: float = 0.0


@dataclass(frozen=True, slots=True)
class Mixed:
    """The target's probability of a step's decided token, and each side's part in it.

    Attributes:
        p: the target's probability of the token; `q` is the cloud's, `share` the device's of p.
        expected: the acceptance of device and cloud by DRAGON Eq. 5; None if not computed.
        files: the evidence of each own file; `cloud` is that of all of the cloud's, in bits.
    """

    share: float
    p: float
    q: float
    expected: tuple[float, float] | None
    files: tuple[float, ...]
    cloud: float


@dataclass(slots=True)
class Moved:
    """The evidence in an answer's decided tokens: bits per step, and their sums per file.

    Each number of bits sums over the tokens that became likelier. A token that became less likely
    counts 0. `weight` is the share of this side's documents at the first token that both sides had
    drafted; None if there is no such token.
    """

    weight: float | None = None
    _files: dict[int, Sequence[float]] = field(default_factory=dict)
    _other: dict[int, float] = field(default_factory=dict)

    def decide(self, step: int, files: Sequence[float], other: float | None = None) -> None:
        """Set a step's evidence in bits: by this side's `files`, by the `other` side if known."""
        self._files[step] = files
        if other is not None:
            self._other[step] = other

    def at(self, step: int) -> tuple[Sequence[float], float | None]:
        """Return the (files, other) that `decide` set for a step; ((), None) if nothing was set."""
        return self._files.get(step, ()), self._other.get(step)

    @property
    def files(self) -> list[float]:
        """Return the bits of evidence of each of this side's files; empty if none are known."""
        longest = max(map(len, self._files.values()), default=0)
        return [
            math.fsum(max(0.0, bits[file]) for bits in self._files.values() if file < len(bits))
            for file in range(longest)
        ]

    @property
    def other(self) -> float | None:
        """Return the bits that the other side's documents added to this side's; None if unknown."""
        return math.fsum(max(0.0, bits) for bits in self._other.values()) if self._other else None
