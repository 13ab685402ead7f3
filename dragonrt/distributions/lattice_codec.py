"""Lattice points as bits: QS, K-SQS and C-SQS, in exactly as many bits as the papers' formulas say.

| codec | transmitted set X_n | bits |
|---|---|---|
| `qs:L` (QSV III-B) | all V tokens | ⌈log2 C(ℓ+V-1, V-1)⌉ |
| `ksqs:K:L` (SQS 2) | the K most likely | ⌈log2 C(V,K)⌉ + ⌈log2 C(ℓ+K-1, K-1)⌉ |
| `csqs:BETA:L` (SQS 3) | {x : q(x) ≥ β}, and the most likely | ⌈log2 V⌉ for K, then as K-SQS |

The token drafted from a point travels as its rank among the tokens with a count above zero.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions.arguments import (
    checked_sum,
    checked_vocabulary,
    number,
    whole_number,
)
from dragonrt.distributions.bits import BitReader, BitWriter
from dragonrt.distributions.enumerative import (
    composition_bits,
    composition_count,
    rank_composition,
    rank_subset,
    subset_bits,
    subset_count,
    unrank_composition,
    unrank_subset,
)
from dragonrt.distributions.errors import CodecError
from dragonrt.distributions.lattice import LatticePoint, round_to_lattice
from dragonrt.distributions.truncation import top_k

LATTICE_FAMILIES = ("qs", "ksqs", "csqs")
MAX_RESOLUTION = 10_000
LATTICE_FORMS = (
    f"qs:L, ksqs:K:L (K >= 1), csqs:BETA:L (0 <= BETA <= 1) with L from 1 to {MAX_RESOLUTION}"
)


class LatticeKind(IntEnum):
    """Which code a bit string is in, as it stands on the wire."""

    QS = 1
    K_SQS = 2
    C_SQS = 3


class LatticeCodec(Protocol):
    """A code of the lattice points over one vocabulary."""

    @property
    def name(self) -> str:
        """The name that `lattice_codec` makes this codec from."""

    @property
    def kind(self) -> LatticeKind:
        """Which of the three codes it is."""

    @property
    def vocabulary(self) -> int:
        """The number of tokens, V."""

    @property
    def resolution(self) -> int:
        """The resolution ℓ where none is given."""

    def quantize(
        self,
        q: NDArray[np.floating[Any]],
        resolution: int | None = None,
        threshold: float | None = None,
    ) -> LatticePoint:
        """The point nearest to `q`, floating [V] of any positive sum, on the set it keeps.

        `threshold` takes the place of C-SQS's β for this token; the other codecs have none.
        Raises CodecError for what is no distribution, or a resolution out of range.
        """

    def bits(self, point: LatticePoint) -> int:
        """The bits that `write` takes: the paper's formula."""

    def write(self, point: LatticePoint, writer: BitWriter) -> None:
        """Append the point."""

    def read(self, reader: BitReader, resolution: int) -> LatticePoint:
        """The next point, of that resolution. Raises CodecError for bits that are no point."""


def lattice_codec(name: str, vocabulary: int) -> LatticeCodec:
    """The lattice codec called `name`; CodecError lists the valid names."""
    checked_vocabulary(vocabulary)
    parts = name.split(":")
    resolution = whole_number(parts[-1])
    if 1 <= resolution <= MAX_RESOLUTION:
        match parts:
            case ["qs", _]:
                return _QS(name, vocabulary, resolution)
            case ["ksqs", count, _] if (k := whole_number(count)) >= 1:
                return _KSQS(name, vocabulary, resolution, min(k, vocabulary))
            case ["csqs", threshold, _] if 0 <= (beta := number(threshold)) <= 1:
                return _CSQS(name, vocabulary, resolution, beta)
    raise CodecError(f"unknown lattice codec {name!r}; valid are {LATTICE_FORMS}")


def token_bits(point: LatticePoint) -> int:
    """⌈log2 n⌉: the bits of a token's rank among the n tokens with a count above zero."""
    return (int(np.count_nonzero(point.counts)) - 1).bit_length()


def write_token(point: LatticePoint, token: int, writer: BitWriter) -> None:
    """Append the rank of `token`. Raises CodecError for a token that the point gives no mass."""
    support = point.support()
    rank = int(support.searchsorted(token))
    if rank == support.size or support[rank] != token:
        raise CodecError(f"token {token} has probability 0 and cannot have been drafted")
    writer.write(rank, (support.size - 1).bit_length())


def read_token(point: LatticePoint, reader: BitReader) -> int:
    """The token whose rank is next. Raises CodecError for a rank beyond the support."""
    support = point.support()
    rank = reader.read((support.size - 1).bit_length())
    if rank >= support.size:
        raise CodecError(f"payload drafts token {rank} of {support.size}; discard it")
    return int(support[rank])


@dataclass(frozen=True, slots=True)
class _QS:
    """All tokens."""

    name: str
    vocabulary: int
    resolution: int
    kind = LatticeKind.QS

    def quantize(
        self,
        q: NDArray[np.floating[Any]],
        resolution: int | None = None,
        threshold: float | None = None,
    ) -> LatticePoint:
        checked_sum(q, self.vocabulary)
        ids = np.arange(self.vocabulary)
        return _rounded(q, ids, self.resolution if resolution is None else resolution)

    def bits(self, point: LatticePoint) -> int:
        return composition_bits(point.resolution, self.vocabulary)

    def write(self, point: LatticePoint, writer: BitWriter) -> None:
        _write_counts(point, writer)

    def read(self, reader: BitReader, resolution: int) -> LatticePoint:
        counts = _read_counts(reader, self.vocabulary, resolution)
        return LatticePoint(np.arange(self.vocabulary), counts, resolution, self.vocabulary)


@dataclass(frozen=True, slots=True)
class _KSQS:
    """The `k` most likely tokens; ties, and zeros where too few are above zero: lower id."""

    name: str
    vocabulary: int
    resolution: int
    k: int
    kind = LatticeKind.K_SQS

    def quantize(
        self,
        q: NDArray[np.floating[Any]],
        resolution: int | None = None,
        threshold: float | None = None,
    ) -> LatticePoint:
        checked_sum(q, self.vocabulary)
        ids = top_k(q, self.k)
        if ids.size < self.k:
            ids = np.concatenate((ids, np.flatnonzero(q == 0)[: self.k - ids.size]))
        return _rounded(q, np.sort(ids), self.resolution if resolution is None else resolution)

    def bits(self, point: LatticePoint) -> int:
        return _sparse_bits(point)

    def write(self, point: LatticePoint, writer: BitWriter) -> None:
        _write_sparse(point, writer)

    def read(self, reader: BitReader, resolution: int) -> LatticePoint:
        return _read_sparse(reader, self.k, resolution, self.vocabulary)


@dataclass(frozen=True, slots=True)
class _CSQS:
    """The tokens of at least the probability `beta`; the most likely one always stays."""

    name: str
    vocabulary: int
    resolution: int
    beta: float
    kind = LatticeKind.C_SQS

    def quantize(
        self,
        q: NDArray[np.floating[Any]],
        resolution: int | None = None,
        threshold: float | None = None,
    ) -> LatticePoint:
        total = checked_sum(q, self.vocabulary)
        beta = self.beta if threshold is None else threshold
        ids = np.flatnonzero(q.astype(np.float64) >= beta * total)
        if not ids.size:
            ids = np.array((q.argmax(),), dtype=np.int64)
        return _rounded(q, ids, self.resolution if resolution is None else resolution)

    def bits(self, point: LatticePoint) -> int:
        return self._size_bits + _sparse_bits(point)

    def write(self, point: LatticePoint, writer: BitWriter) -> None:
        writer.write(point.ids.size - 1, self._size_bits)
        _write_sparse(point, writer)

    def read(self, reader: BitReader, resolution: int) -> LatticePoint:
        k = reader.read(self._size_bits) + 1
        if k > self.vocabulary:
            raise CodecError(f"payload keeps {k} of {self.vocabulary} tokens; discard it")
        return _read_sparse(reader, k, resolution, self.vocabulary)

    @property
    def _size_bits(self) -> int:
        return (self.vocabulary - 1).bit_length()


def _rounded(q: NDArray[np.floating[Any]], ids: NDArray[np.int64], resolution: int) -> LatticePoint:
    _check_resolution(resolution)
    kept = q[ids].astype(np.float64)
    return LatticePoint(ids, round_to_lattice(kept / kept.sum(), resolution), resolution, q.size)


def _sparse_bits(point: LatticePoint) -> int:
    k = point.ids.size
    return subset_bits(point.vocabulary, k) + composition_bits(point.resolution, k)


def _write_sparse(point: LatticePoint, writer: BitWriter) -> None:
    rank = rank_subset(point.ids.tolist(), point.vocabulary)
    writer.write(rank, subset_bits(point.vocabulary, point.ids.size))
    _write_counts(point, writer)


def _read_sparse(reader: BitReader, k: int, resolution: int, vocabulary: int) -> LatticePoint:
    rank = reader.read(subset_bits(vocabulary, k))
    if rank >= subset_count(vocabulary, k):
        raise CodecError("payload has no valid set of tokens; discard it")
    ids = np.array(unrank_subset(rank, k, vocabulary), dtype=np.int64)
    return LatticePoint(ids, _read_counts(reader, k, resolution), resolution, vocabulary)


def _write_counts(point: LatticePoint, writer: BitWriter) -> None:
    bits = composition_bits(point.resolution, point.counts.size)
    writer.write(rank_composition(point.counts), bits)


def _read_counts(reader: BitReader, k: int, resolution: int) -> NDArray[np.int64]:
    _check_resolution(resolution)
    rank = reader.read(composition_bits(resolution, k))
    if rank >= composition_count(resolution, k):
        raise CodecError("payload has no valid lattice point; discard it")
    return unrank_composition(rank, resolution, k)


def _check_resolution(resolution: int) -> None:
    if not 1 <= resolution <= MAX_RESOLUTION:
        raise CodecError(f"resolution {resolution} must be from 1 to {MAX_RESOLUTION}")
