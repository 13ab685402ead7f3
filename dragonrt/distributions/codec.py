"""Distributions as bits: what a side sends, and what the other side reconstructs from it.

A draft is sampled from `decode(encode(p))` on both sides ("quantize, then sample", QSV Prop. 1),
so whatever a codec throws away, the text stays exact with respect to what was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from dragonrt.distributions.distribution import Distribution
from dragonrt.distributions.errors import CodecError
from dragonrt.distributions.lattice_codec import (
    LATTICE_FAMILIES,
    LATTICE_FORMS,
    LatticeCodec,
    lattice_codec,
)
from dragonrt.distributions.payload import (
    FP16,
    FP32,
    Format,
    Kind,
    check_kind,
    decode_dense,
    decode_sparse,
    encode_dense,
    encode_sparse,
    lattice_tag,
    other_codec,
)
from dragonrt.distributions.truncation import top_k, top_p

VALID_FORMS = (
    "dense:fp16, dense:fp32, topp:P (0 < P <= 1), topk:K:renorm, topk:K:residual (K >= 1), "
    + LATTICE_FORMS
)


class Codec(Protocol):
    """A lossy code of next-token distributions over one vocabulary."""

    @property
    def name(self) -> str:
        """The name that `codec` makes this codec from."""

    def encode(self, p: NDArray[np.floating[Any]]) -> bytes:
        """The payload for the probabilities `p`, floating [V], of any positive sum.

        Raises CodecError for another shape, negative or non-finite entries, or a zero sum.
        """

    def decode(self, payload: bytes) -> Distribution:
        """What the payload says, renormalised to sum 1, the same to the last bit on every machine.

        Raises CodecError for a payload that is malformed or of another codec.
        """


def codec(name: str, vocabulary: int) -> Codec:
    """The codec called `name` over `vocabulary` tokens; CodecError lists the valid names."""
    checked_vocabulary(vocabulary)
    match name.split(":"):
        case ["dense", "fp16"]:
            return _Dense(name, vocabulary, FP16)
        case ["dense", "fp32"]:
            return _Dense(name, vocabulary, FP32)
        case ["topp", mass] if 0 < (p := number(mass)) <= 1:
            return _TopP(name, vocabulary, p)
        case ["topk", count, "renorm"] if (k := whole_number(count)) >= 1:
            return _TopKRenormalised(name, vocabulary, k)
        case ["topk", count, "residual"] if (k := whole_number(count)) >= 1:
            return _TopKResidual(name, vocabulary, k)
        case [family, *_] if family in LATTICE_FAMILIES:
            return _Lattice(name, vocabulary, lattice_codec(name, vocabulary))
    raise CodecError(f"unknown codec {name!r}; valid are {VALID_FORMS}")


@dataclass(frozen=True, slots=True)
class _Dense:
    """All V probabilities."""

    name: str
    vocabulary: int
    format: Format

    def encode(self, p: NDArray[np.floating[Any]]) -> bytes:
        checked_sum(p, self.vocabulary)
        return encode_dense(self.format, p / p.max())

    def decode(self, payload: bytes) -> Distribution:
        check_kind(payload, self.name, self.format.kind)
        return decode_dense(self.format, payload, self.vocabulary)


@dataclass(frozen=True, slots=True)
class _TopP:
    """The fewest most likely tokens that hold the mass `p`, renormalised (DRAGON, p = 0.8)."""

    name: str
    vocabulary: int
    p: float

    def encode(self, p: NDArray[np.floating[Any]]) -> bytes:
        mass = self.p * checked_sum(p, self.vocabulary)
        ids = np.sort(top_p(p, mass))
        values = p[ids]
        return encode_sparse(Kind.TOP_P, ids, values / values.max())

    def decode(self, payload: bytes) -> Distribution:
        check_kind(payload, self.name, Kind.TOP_P)
        return decode_sparse(payload, self.vocabulary, at_most=self.vocabulary)


@dataclass(frozen=True, slots=True)
class _TopKRenormalised:
    """The `k` most likely tokens, renormalised (SPECFED)."""

    name: str
    vocabulary: int
    k: int

    def encode(self, p: NDArray[np.floating[Any]]) -> bytes:
        checked_sum(p, self.vocabulary)
        ids = np.sort(top_k(p, self.k))
        values = p[ids]
        return encode_sparse(Kind.RENORMALISED, ids, values / values.max())

    def decode(self, payload: bytes) -> Distribution:
        check_kind(payload, self.name, Kind.RENORMALISED)
        return decode_sparse(payload, self.vocabulary, at_most=self.k)


@dataclass(frozen=True, slots=True)
class _TopKResidual:
    """The `k` most likely tokens, the mass of the others spread evenly over them (SPECFED)."""

    name: str
    vocabulary: int
    k: int

    def encode(self, p: NDArray[np.floating[Any]]) -> bytes:
        total = checked_sum(p, self.vocabulary)
        ids = np.sort(top_k(p, self.k))
        values = p[ids].astype(np.float64)
        rest = max(0.0, total - float(values.sum()))
        largest = max(float(values.max()), rest)
        return encode_sparse(Kind.RESIDUAL, ids, values / largest, rest / largest)

    def decode(self, payload: bytes) -> Distribution:
        check_kind(payload, self.name, Kind.RESIDUAL, Kind.NO_RESIDUAL)
        return decode_sparse(payload, self.vocabulary, at_most=self.k)


@dataclass(frozen=True, slots=True)
class _Lattice:
    """One lattice point of QS, K-SQS or C-SQS, with zero bits up to a whole byte (SPEC 2)."""

    name: str
    vocabulary: int
    lattice: LatticeCodec

    def encode(self, p: NDArray[np.floating[Any]]) -> bytes:
        writer = BitWriter()
        self.lattice.write(self.lattice.quantize(p), writer)
        return lattice_tag(self.lattice.kind) + writer.to_bytes()

    def decode(self, payload: bytes) -> Distribution:
        if payload[:1] != lattice_tag(self.lattice.kind):
            raise other_codec(self.name)
        reader = BitReader(payload[1:])
        point = self.lattice.read(reader, self.lattice.resolution)
        reader.finish()
        return point.distribution()
