"""Codecs of whole bytes: all probabilities, or the most likely ones as Elias-Fano and fp16.

Their bytes encode their kind and length, so a payload has no other header.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.distributions.bits import BitReader, BitWriter
from dragonrt.distributions.distribution import Distribution, checked_sum
from dragonrt.distributions.payload import (
    Format,
    Kind,
    decode_dense,
    decode_sparse,
    encode_dense,
    encode_sparse,
    kind_of,
)
from dragonrt.distributions.protocol import PLAIN, Codec, Quantized, Step, other_codec
from dragonrt.distributions.truncation import top_k, top_p
from dragonrt.errors import CodecError


@dataclass(frozen=True, slots=True)
class ByteCodec(Codec):
    """The common part of the codecs of whole bytes. Tokens travel as ids."""

    @override
    def write(self, quantized: Quantized, writer: BitWriter) -> None:
        if not isinstance(quantized.code, bytes):
            raise CodecError(f"{self.name} cannot send what another codec quantized")
        writer.write_bytes(quantized.code)

    @override
    def decode(self, data: bytes, step: Step = PLAIN) -> Distribution:
        if not data.startswith(self.header):
            raise other_codec(self.name)
        distribution, length = self._decode(memoryview(data)[len(self.header) :])
        if len(self.header) + length != len(data):
            raise CodecError("payload has bits after its last field; discard it")
        return distribution

    @override
    def read(self, reader: BitReader, step: Step = PLAIN) -> Callable[[], Distribution]:
        distribution, length = self._decode(reader.rest())
        reader.skip(length)
        return lambda: distribution

    def _decode(self, data: memoryview) -> tuple[Distribution, int]:
        """Return the distribution at the beginning of `data`, and its number of bytes."""
        raise NotImplementedError

    def _quantized(
        self, p: NDArray[np.floating[Any]], total: float, coded: tuple[bytes, Distribution]
    ) -> Quantized:
        """Return `p`, of the sum `total`, in its code."""
        code, distribution = coded
        kept = float(p[distribution.ids].sum(dtype=np.float64))
        token = (self.vocabulary - 1).bit_length()
        return Quantized(distribution, 8 * len(code), token, code, max(0.0, 1 - kept / total))


@dataclass(frozen=True, slots=True)
class Dense(ByteCodec):
    """All V probabilities."""

    format: Format

    @override
    def quantize(self, p: NDArray[np.floating[Any]], step: Step = PLAIN) -> Quantized:
        total = checked_sum(p, self.vocabulary)
        return self._quantized(p, total, encode_dense(self.format, p / p.max()))

    @override
    def _decode(self, data: memoryview) -> tuple[Distribution, int]:
        if kind_of(data) != self.format.kind:
            raise other_codec(self.name)
        return decode_dense(self.format, data, self.vocabulary)


@dataclass(frozen=True, slots=True)
class Sparse(ByteCodec):
    """The most likely tokens, at most `k`.

    By `kind`, TOP_P: the fewest that hold `mass`, renormalised (DRAGON, 0.8); RENORMALISED: `k`
    (SPECFED); RESIDUAL: `k`, the mass of the others spread evenly over them (SPECFED).
    """

    kind: Kind
    k: int
    mass: float = 1.0

    @property
    @override
    def light(self) -> bool:  # type: ignore[override]  # it depends on the kind
        return self.kind is not Kind.RESIDUAL

    @override
    def quantize(self, p: NDArray[np.floating[Any]], step: Step = PLAIN) -> Quantized:
        total = checked_sum(p, self.vocabulary)
        ids = np.sort(top_p(p, self.mass * total) if self.kind is Kind.TOP_P else top_k(p, self.k))
        values, rest = p[ids], 0.0
        scale = values.max()
        if self.kind is Kind.RESIDUAL:
            values = values.astype(np.float64)
            rest = max(0.0, total - float(values.sum()))
            scale = max(float(values.max()), rest)
        coded = encode_sparse(self.kind, ids, values / scale, rest / scale, self.vocabulary)
        return self._quantized(p, total, coded)

    @override
    def _decode(self, data: memoryview) -> tuple[Distribution, int]:
        residual = (Kind.RESIDUAL, Kind.NO_RESIDUAL)
        if kind_of(data) not in (residual if self.kind is Kind.RESIDUAL else (self.kind,)):
            raise other_codec(self.name)
        return decode_sparse(data, self.vocabulary, at_most=self.k)
