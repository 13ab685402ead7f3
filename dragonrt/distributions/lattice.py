"""Lattice points, whose probabilities are multiples of 1/ℓ, as bits: QS, K-SQS and C-SQS (SPEC 2).

| codec | transmitted set X_n | bits |
|---|---|---|
| `qs:L` (QSV III-B) | all V tokens | ⌈log2 C(ℓ+V-1, V-1)⌉ |
| `ksqs:K:L` (SQS 2) | the K most likely | ⌈log2 C(V,K)⌉ + ⌈log2 C(ℓ+K-1, K-1)⌉ |
| `csqs:BETA:L` (SQS 3) | {x : q(x) ≥ β}, and the most likely | ⌈log2 V⌉ for K, then as K-SQS |

C-SQS's threshold is controlled by online conformal prediction. Every token's support is X_n = {x :
q(x) ≥ β_n}. β falls if more than the wanted mass α was dropped, and rises if less was (SQS Eq.
(8)). Only accepted tokens move β: it is stored before each drafted token and rolled back with it.
β may rise above 1 + ηα (unlike SQS Lemma 4), but Theorem 2 needs only β ≥ -η(1-α).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.distributions.distribution import Distribution, checked_sum, every_token, top_k
from dragonrt.distributions.enumerative import (
    composition_bits,
    is_composition_rank,
    is_subset_rank,
    rank_composition,
    rank_subset,
    subset_bits,
    unrank_composition,
    unrank_subset,
)
from dragonrt.distributions.protocol import (
    PLAIN,
    BitReader,
    BitWriter,
    Codec,
    Quantized,
    Step,
    token_bits,
)
from dragonrt.errors import CodecError


@dataclass(frozen=True, slots=True, eq=False)
class LatticePoint:
    """The probabilities `counts / resolution` of the tokens `ids`, and zero for all others.

    `ids` int64 [K], K ≥ 1, strictly increasing; `counts` int64 [K], not negative, of the sum
    `resolution` (the papers' ℓ). `ids` is the set X_n that is transmitted, so some counts may be 0.
    """

    ids: NDArray[np.int64]
    counts: NDArray[np.int64]
    resolution: int
    vocabulary: int

    def distribution(self) -> Distribution:
        """Return the point as a Distribution, which lists only the tokens with a count above 0."""
        listed = np.flatnonzero(self.counts)
        probabilities = self.counts[listed] / self.resolution
        return Distribution(self.ids[listed], probabilities, 0.0, self.vocabulary)


def round_to_lattice(q: NDArray[np.float64], resolution: int) -> NDArray[np.int64]:
    """Return the counts of the lattice point nearest to `q`, float64 [K] of sum 1: SQS Alg. 2.

    They are int64 [K], not negative, of the sum `resolution`. Among equal errors, which Alg. 2
    leaves open, the lower index gets the greater count.
    """
    scaled = resolution * q
    counts = np.floor(scaled + 0.5).astype(np.int64)
    errors = counts - scaled  # ζ, at most ½ each: more than enough of them have the sign sought
    excess = int(counts.sum()) - resolution
    if excess > 0:
        counts[q.size - 1 - top_k(errors[::-1], excess)] -= 1
    elif excess < 0:
        counts[top_k(-errors, -excess)] += 1
    return counts


def dropped_mass(q: NDArray[np.floating[Any]], ids: NDArray[np.int64]) -> float:
    """Return α_n(X_n) of SQS Eq. (4): the share of `q`, floating [V], outside `ids`.

    Sums the dropped entries, so that it is exactly zero if none is dropped.
    """
    dropped = q.copy()
    dropped[ids] = 0
    return float(dropped.sum(dtype=np.float64) / q.sum(dtype=np.float64))


MAX_RESOLUTION = 10_000


class LatticeKind(IntEnum):
    """The lattice codec that wrote a payload: a number in the payload's first byte."""

    QS = 1
    K_SQS = 2
    C_SQS = 3


_CODE_SHIFT = 3  # the bits below are 0: no kind of whole bytes
_BY_ID = 0x80


@dataclass(frozen=True, slots=True)
class LatticeCodec(Codec):
    """A codec that rounds probabilities to multiples of 1 / `resolution`: QS, K-SQS and C-SQS.

    It sends the `k` most likely tokens, lower ids first among equally likely ones. If `k` is None
    (C-SQS), it sends the tokens with probability `beta` or more, at least one.
    """

    kind: LatticeKind
    resolution: int
    k: int | None
    beta: float = 0.0
    by_id: bool = False

    has_resolution: ClassVar = True
    longest: ClassVar = 32 * 1024  # each point takes up to 30 us to write, and as long to read

    @property
    @override
    def tokens_by_id(self) -> bool:  # type: ignore[override]  # a field decides
        return self.by_id

    @property
    @override
    def header(self) -> bytes:  # type: ignore[override]  # fields decide
        return bytes((self.kind << _CODE_SHIFT | (_BY_ID if self.by_id else 0),))

    @override
    def quantize(self, p: NDArray[np.floating[Any]], step: Step = PLAIN) -> Quantized:
        total = checked_sum(p, self.vocabulary)
        resolution = self._resolution(step)
        ids = self._kept(p, self.beta if step.threshold is None else step.threshold, total)
        kept = p[ids].astype(np.float64)
        counts = round_to_lattice(kept / kept.sum(), resolution)
        point = LatticePoint(ids, counts, resolution, self.vocabulary)
        sent = point.distribution()
        bits = self._size_bits + subset_bits(self.vocabulary, ids.size)
        bits += composition_bits(resolution, ids.size)
        return Quantized(sent, bits, token_bits(self, sent), point, dropped_mass(p, ids))

    @override
    def write(self, quantized: Quantized, writer: BitWriter) -> None:
        point = quantized.code
        if not isinstance(point, LatticePoint):
            raise CodecError(f"{self.name} cannot send what another codec quantized")
        k = point.ids.size
        if self.k is None:
            writer.write(k - 1, self._size_bits)
        if k < self.vocabulary:
            rank = rank_subset(point.ids.tolist(), self.vocabulary)
            writer.write(rank, subset_bits(self.vocabulary, k))
        writer.write(rank_composition(point.counts), composition_bits(point.resolution, k))

    @override
    def read(self, reader: BitReader, step: Step = PLAIN) -> Callable[[], Distribution]:
        point = self.read_point(reader, step)
        return lambda: point().distribution()

    def read_point(self, reader: BitReader, step: Step = PLAIN) -> Callable[[], LatticePoint]:
        """Consume a distribution's bits; return a function that computes its LatticePoint.

        Computing it is slow, so a caller first reads and checks the whole payload. The resolution ℓ
        is that of `step`, or the codec's own if that is None. Raises CodecError for invalid bits.
        """
        resolution = self._resolution(step)
        k = reader.read(self._size_bits) + 1 if self.k is None else self.k
        if k > self.vocabulary:
            raise CodecError(f"payload keeps {k} of {self.vocabulary} tokens; discard it")
        chosen = reader.read(subset_bits(self.vocabulary, k))
        if not is_subset_rank(chosen, self.vocabulary, k):
            raise CodecError("payload has no valid set of tokens; discard it")
        rank = reader.read(composition_bits(resolution, k))
        if not is_composition_rank(rank, resolution, k):
            raise CodecError("payload has no valid lattice point; discard it")

        def point() -> LatticePoint:
            ids = every_token(k)
            if k < self.vocabulary:
                ids = np.array(unrank_subset(chosen, k, self.vocabulary), dtype=np.int64)
            counts = unrank_composition(rank, resolution, k)
            return LatticePoint(ids, counts, resolution, self.vocabulary)

        return point

    def _kept(
        self, p: NDArray[np.floating[Any]], threshold: float, total: float
    ) -> NDArray[np.int64]:
        """Return the set X_n: int64 [K], strictly increasing."""
        if self.k is None:
            ids = np.flatnonzero(p.astype(np.float64) >= threshold * total)
            return ids if ids.size else np.array((p.argmax(),), dtype=np.int64)
        if self.k == self.vocabulary:
            return every_token(self.vocabulary)
        ids = top_k(p, self.k)
        if ids.size < self.k:
            ids = np.concatenate((ids, np.flatnonzero(p == 0)[: self.k - ids.size]))
        return np.sort(ids)

    def _resolution(self, step: Step) -> int:
        resolution = self.resolution if step.resolution is None else step.resolution
        if not 1 <= resolution <= MAX_RESOLUTION:
            raise CodecError(f"resolution {resolution} must be from 1 to {MAX_RESOLUTION}")
        return resolution

    @property
    def _size_bits(self) -> int:
        return (self.vocabulary - 1).bit_length() if self.k is None else 0


@dataclass(frozen=True, slots=True)
class ConformalThreshold:
    """C-SQS's least probability β of a sent token, its learning rate η, the wanted dropped mass α.

    The defaults of η and α are those of SQS's experiments; the first β is the caller's choice.
    """

    beta: float
    eta: float = 0.001
    alpha: float = 0.0005

    @classmethod
    def first(cls, beta: float, eta: float, alpha: float, horizon: int | None) -> Self:
        """Return a text's first threshold; √`horizon` (tokens), if not None, divides η and α."""
        root = 1.0 if horizon is None else math.sqrt(horizon)
        return cls(beta, eta / root, alpha / root)

    def after(self, dropped: float) -> "ConformalThreshold":
        """Return the next token's threshold (SQS Eq. (8)) from the mass `dropped` at this token."""
        return replace(self, beta=self.beta - self.eta * (dropped - self.alpha))


def backtrack(
    start: ConformalThreshold, dropped: Sequence[float], accepted: int
) -> ConformalThreshold:
    """Return C-SQS's threshold after a verified block (SQS Alg. 1, lines 11 to 13).

    `start` is the threshold of the block's first token, `dropped` the mass dropped at each drafted
    token. The threshold moves by the masses of the first `accepted` drafts, then by that of the
    rejected draft. If none was rejected, the last mass counts twice (line 12), unless the caller
    appends the mass of the token after the block to `dropped`.
    """
    threshold = start
    for mass in dropped[: accepted + 1]:
        threshold = threshold.after(mass)
    if dropped and accepted == len(dropped):
        threshold = threshold.after(dropped[-1])
    return threshold


def theorem2_bound(tokens: int, beta_1: float, eta: float, alpha: float) -> float:
    """Return α + (|β_1| + 1 + ηα)/(ηT), the most mean dropped mass of T tokens (SQS Thm. 2)."""
    return alpha + (abs(beta_1) + 1 + eta * alpha) / (eta * tokens)
