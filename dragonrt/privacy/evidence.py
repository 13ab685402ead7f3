"""Evidence: how much each side's documents contributed to a decided token (SPEC 1.10). Pure.

Realised evidence is log2 p_t(x)/q_t(x) bits: how much likelier the target distribution p_t makes
the token x than q_t, the cloud's distribution alone. Leave-one-out evidence of a file is
log2 p_t(x)/p_t⁻(x) bits, where p_t⁻ is the target without the file's rows; one row is one document.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution
from dragonrt.distributions.distribution import FEW

MOST_BITS = 20.0  # the most bits of one token, as when a codec dropped the cloud's probability
LEAST = 1e-4  # tokens with a smaller probability are not kept: no file made them likely


def evidence_bits(p: float, q: float) -> float:
    """Return log2 p/q, within ±20: a token's probability p with files, q without; 0 if p is 0."""
    if p <= 0 or q <= 0:
        return MOST_BITS if p > q else 0.0
    return max(-MOST_BITS, min(MOST_BITS, math.log2(p / q)))


def likely(p: Distribution, token: int) -> NDArray[np.int64]:
    """Return the likely tokens of `p`, for which RowShares keeps what each document adds.

    They are all tokens that `p` lists if these are at most 16, else those with a probability of at
    least 1e-4 or, if smaller, the probability of `token`, which was drawn from `p`.
    """
    if p.ids.size <= FEW:
        return p.ids
    return p.ids[p.probabilities >= min(LEAST, p.probability(token))]


@dataclass(frozen=True, slots=True)
class RowShares:
    """What each batch row, which reads one document, adds to its side's next-token distribution.

    Row n reads a document of file number `files[n]` and has the weight `weights[n]`. `shares[n, k]`
    is this weight times the row's probability of the token `tokens[k]`; `tokens` is sorted.
    """

    files: Sequence[int]
    tokens: NDArray[np.int64]
    weights: NDArray[np.float64]
    shares: NDArray[np.float64]

    def carrier(self, token: int) -> int:
        """Return the index of the row whose document adds most to the token's probability."""
        return int(self._given(token).argmax())

    def without_each(self, token: int, weight: float, q: float) -> tuple[float, ...]:
        """Return the leave-one-out evidence of each of this side's files for `token`, in bits.

        `weight` is this side's weight in the mixture, `q` the other side's probability of `token`.
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
        payload: the encoded distribution. `distribution` is decoded from it, None until needed.
        relevance: h̃, the log-sum-exp of the documents' relevances; it sets the side's weight.
        kept: κ, the log of the share of weight left if documents contradict the answer, else 0.
        decode_s: the seconds of the forward.
        rows: what each document added to the distribution; None for the other side's draft.
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
    """The mixture's probability of a decided token, and what each side contributed to it.

    Attributes:
        p, q: the token's probability in the mixture, and in the cloud's distribution alone.
        share: the fraction of `p` that the device contributes.
        expected: the acceptance rates (device, cloud) by DRAGON Eq. 5; None if they are not used.
        files: for each file of this side, the bits by which it made the token likelier.
        cloud: the bits by which all files of the cloud together made the token likelier.
    """

    share: float
    p: float
    q: float
    expected: tuple[float, float] | None
    files: tuple[float, ...]
    cloud: float


@dataclass(slots=True)
class AnswerEvidence:
    """The evidence for each decided token of an answer, in bits, and its sums over the answer.

    A sum counts only the tokens that the documents made likelier. `weight` is this side's weight in
    the mixture at the first token that both sides drafted; None if there is no such token.
    """

    weight: float | None = None
    _files: dict[int, Sequence[float]] = field(default_factory=dict)
    _other: dict[int, float] = field(default_factory=dict)

    def decide(self, step: int, files: Sequence[float], other: float | None = None) -> None:
        """Note the evidence bits of token `step`: each own file's and, if known, the peer's."""
        self._files[step] = files
        if other is not None:
            self._other[step] = other

    def at(self, step: int) -> tuple[Sequence[float], float | None]:
        """Return the bits by which (own files, peer) made a token likelier. ((), None) if unset."""
        return self._files.get(step, ()), self._other.get(step)

    @property
    def files(self) -> list[float]:
        """Return the bits by which each file of this side made the answer likelier, or []."""
        longest = max(map(len, self._files.values()), default=0)
        return [
            math.fsum(max(0.0, bits[file]) for bits in self._files.values() if file < len(bits))
            for file in range(longest)
        ]

    @property
    def other(self) -> float | None:
        """Return by how many bits the other side made the answer likelier; None if unknown."""
        return math.fsum(max(0.0, bits) for bits in self._other.values()) if self._other else None
