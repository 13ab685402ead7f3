"""Codecs of whole bytes: all probabilities, or the most likely ones as Elias-Fano and fp16.

Their bytes encode their kind and length, so a payload has no other header. They are little endian
and start with the byte `kind | low_bits << 3`. Then follow
- for the dense kinds: the values of all V tokens;
- for the sparse kinds: the number K ≥ 1 of listed tokens (a varint), K values as fp16, for
  RESIDUAL one more for the sum of all others, then the K ids, sorted, in the Elias-Fano code.
A value is a probability divided by the largest value, so it is between 0 and 1.

In the Elias-Fano code first come the `low_bits` lowest bits of all ids. Then comes one unary bit
string: the i-th id sets the bit `(id >> low_bits) + i`. The string ends in the byte of its last set
bit. That is about `2 + log2(largest / count)` bits per id, within half a bit of the entropy of a
random set. Frequent tokens have small ids, so they cost less.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.distributions.distribution import FEW, Distribution, checked_sum, top_k, top_p
from dragonrt.distributions.protocol import (
    PLAIN,
    BitReader,
    BitWriter,
    Codec,
    Quantized,
    Step,
    other_codec,
)
from dragonrt.errors import CodecError

MAX_LOW_BITS = 31


def low_bits_of(ids: NDArray[np.int64]) -> int:
    """Return how many low bits per id, 0 … 31, make the code of `encode_support` shortest."""
    return ((int(ids[-1]) + 1) // ids.size).bit_length() - 1 if ids.size <= ids[-1] else 0


def encode_support(ids: NDArray[np.int64], low_bits: int) -> bytes:
    """Return the Elias-Fano code of `ids`, increasing int64 [K], split above `low_bits` bits."""
    if ids.size <= FEW:
        return _encode_few(ids.tolist(), low_bits)
    unary = (ids >> low_bits) + np.arange(ids.size)
    split = ids.size * low_bits
    bits = np.zeros(split + int(unary[-1]) + 1, dtype=np.bool_)
    if low_bits:
        bits[:split] = (ids[:, None] & _POWERS[:low_bits]).ravel()
    bits[split + unary] = True
    return np.packbits(bits, bitorder="little").tobytes()


def decode_support(
    data: bytes | memoryview, count: int, low_bits: int, vocabulary: int
) -> tuple[NDArray[np.int64], int]:
    """Return (ids, length in bytes) of the Elias-Fano code of `count` ≥ 1 ids that begins `data`.

    The ids are int64 [K], strictly increasing, below V. Raises CodecError for other bytes: too
    short, another number of ids, unsorted, repeated or outside of the vocabulary.
    """
    split = count * low_bits
    # No code of ids below V is longer, so not more is unpacked, whatever follows.
    longest = (split + (vocabulary - 1 >> low_bits) + count + 7) // 8
    if count <= FEW:
        return _decode_few(data[:longest], count, low_bits, vocabulary)
    bits = np.unpackbits(np.frombuffer(data[:longest], dtype=np.uint8), bitorder="little")
    unary: NDArray[np.int64] = np.flatnonzero(bits[split:])
    if unary.size < count:
        raise _wrong(count, vocabulary)
    length = (split + int(unary[count - 1])) // 8 + 1
    if unary.size > count:
        if split + int(unary[count]) < 8 * length:
            raise _wrong(count, vocabulary)
        unary = unary[:count]
    ids = (unary - np.arange(count)) << low_bits
    if low_bits:
        ids += bits[:split].reshape(count, low_bits) @ _POWERS[:low_bits]
    if int(ids[-1]) >= vocabulary or not (ids[1:] > ids[:-1]).all():
        raise _wrong(count, vocabulary)
    return ids, length


def _encode_few(ids: list[int], low_bits: int) -> bytes:
    bits, split, mask = 0, len(ids) * low_bits, (1 << low_bits) - 1
    for place, each in enumerate(ids):
        bits |= (each & mask) << place * low_bits | 1 << split + (each >> low_bits) + place
    return bits.to_bytes(-(-bits.bit_length() // 8), "little")


def _decode_few(
    data: bytes | memoryview, count: int, low_bits: int, vocabulary: int
) -> tuple[NDArray[np.int64], int]:
    bits, split, mask = int.from_bytes(data, "little"), count * low_bits, (1 << low_bits) - 1
    unary, position, ids, last, increases = bits >> split, 0, list[int](), -1, True
    for place in range(count):
        if not unary:
            raise _wrong(count, vocabulary)
        position = (unary & -unary).bit_length() - 1
        unary &= unary - 1
        each = (position - place) << low_bits | bits >> place * low_bits & mask
        last, increases = each, increases and each > last
        ids.append(each)
    length = (split + position) // 8 + 1
    if unary and split + (unary & -unary).bit_length() - 1 < 8 * length:
        raise _wrong(count, vocabulary)
    if last >= vocabulary or not increases:
        raise _wrong(count, vocabulary)
    return np.array(ids), length


def _wrong(count: int, vocabulary: int) -> CodecError:
    return CodecError(f"payload is not {count} increasing token ids below {vocabulary}; discard it")


_POWERS: NDArray[Any] = 1 << np.arange(MAX_LOW_BITS, dtype=np.int64)


class Kind(IntEnum):
    """The format of an encoded distribution: DENSE has all tokens, other kinds the likeliest."""

    DENSE_FP16 = 1
    DENSE_FP32 = 2
    TOP_P = 3
    RENORMALISED = 4
    RESIDUAL = 5
    NO_RESIDUAL = 6  # from the codec with a residual, where none is left


KIND_BITS = 3
_KINDS = (1 << KIND_BITS) - 1


@dataclass(frozen=True, slots=True)
class Format:
    """A float format, fp16 or fp32: `one` is the bit pattern of 1.0, an integer of type `bits`."""

    kind: Kind
    dtype: np.dtype[np.floating[Any]]
    bits: np.dtype[np.unsignedinteger[Any]]
    one: int


FP16 = Format(Kind.DENSE_FP16, np.dtype("<f2"), np.dtype("<u2"), 0x3C00)
_FP16_VALUES = np.arange(FP16.one + 1, dtype=FP16.bits).view(FP16.dtype).astype(np.float64)
FP32 = Format(Kind.DENSE_FP32, np.dtype("<f4"), np.dtype("<u4"), 0x3F800000)


def _half_values(data: memoryview, start: int, count: int) -> NDArray[np.float64]:
    """Return `count` values of fp16, each above 0 and up to 1."""
    if count <= FEW:
        listed = struct.unpack_from(f"<{count}e", data, start)
        good, values = True, np.array(listed)
        for each in listed:
            good = good and 0 < each <= 1
    else:
        encoded = np.frombuffer(data, FP16.dtype, count=count, offset=start)
        # Minus one turns the pattern of 0 into the largest: one comparison finds every bad value.
        good = int((encoded.view(FP16.bits) - FP16.bits.type(1)).max()) < FP16.one
        values = encoded.astype(np.float64)
    if not good:
        raise CodecError("payload has a value that is not above 0 and up to 1; discard it")
    return values


def _normalised(
    ids: NDArray[np.int64], values: NDArray[np.float64], rest: float, vocabulary: int
) -> Distribution:
    # Values of fp16 are multiples of 2^-24, their sum in float64 is exact in any order; for fp32
    # both sides rely on numpy's order of summation, which no instruction set changes.
    total = float(values.sum()) + rest
    return Distribution(ids, values / total, rest / total, vocabulary)


def _to_fp16(values: NDArray[np.floating[Any]]) -> NDArray[np.float16]:
    if values.size <= FEW:
        rounded: NDArray[np.float16] = values.astype(FP16.dtype)
        return rounded
    # numpy rounds what is below the smallest normal value, most of a vocabulary, 20 times slower
    # than the rest. But there the bits are those of a whole number: the multiple of 2^-24.
    multiples = np.minimum(values, 2.0**-14) * 2.0**24
    bits = np.rint(multiples, out=multiples).astype(FP16.bits)
    normal = np.flatnonzero(values >= 2.0**-14)
    rounded = bits.view(FP16.dtype)
    rounded[normal] = values[normal].astype(FP16.dtype)
    return rounded


def varint(number: int) -> bytes:
    """Return a number in bytes of 7 bits, lowest first; a set high bit says that more follow."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def read_varint(data: memoryview) -> tuple[int, int]:
    """Return (number, next index) of the varint after `data[0]`, the kind; or raise CodecError."""
    number = 0
    for position, byte in enumerate(data[1:5]):
        number |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            if position and not byte:
                break
            return number, position + 2
    raise CodecError("payload has no valid number of tokens; discard it")


@dataclass(frozen=True, slots=True)
class ByteCodec(Codec):
    """Base of the codecs that write distributions in whole bytes, and tokens as their ids."""

    @override
    def write(self, quantized: Quantized, writer: BitWriter) -> None:
        writer.write_bytes(self.encode(quantized)[len(self.header) :])

    @override
    def encode(self, quantized: Quantized) -> bytes:
        if not isinstance(quantized.code, bytes):
            raise CodecError(f"{self.name} cannot send what another codec quantized")
        return self.header + quantized.code

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
        self, p: NDArray[np.floating[Any]], total: float, code: bytes, distribution: Distribution
    ) -> Quantized:
        """Return `p`, of the sum `total`, in its code."""
        kept = float(p[distribution.ids].sum(dtype=np.float64))
        token = (self.vocabulary - 1).bit_length()
        return Quantized(distribution, 8 * len(code), token, code, max(0.0, 1 - kept / total))


@dataclass(frozen=True, slots=True)
class Dense(ByteCodec):
    """A codec that sends the probabilities of all V tokens, each in one float format."""

    format: Format

    @override
    def quantize(self, p: NDArray[np.floating[Any]], step: Step = PLAIN) -> Quantized:
        total, form, values = checked_sum(p, self.vocabulary), self.format, p / p.max()
        rounded = _to_fp16(values) if form is FP16 else values.astype(form.dtype)
        code = bytes((form.kind,)) + rounded.tobytes()
        return self._quantized(p, total, code, self._distribution(rounded))

    @override
    def _decode(self, data: memoryview) -> tuple[Distribution, int]:
        form = self.format
        if not data or data[0] & _KINDS != form.kind:
            raise other_codec(self.name)
        length = 1 + self.vocabulary * form.dtype.itemsize
        if len(data) < length:
            raise CodecError(f"payload ends {length - len(data)} bytes too early; discard it")
        coded = bytes(data[1:length])  # copied, so that the values are aligned: twice as fast
        largest = int(np.frombuffer(coded, form.bits).max())
        if largest > form.one:
            raise CodecError("payload has a value that is not between 0 and 1; discard it")
        if not largest:
            raise CodecError("payload has no value above zero; discard it")
        return self._distribution(np.frombuffer(coded, form.dtype)), length

    def _distribution(self, values: NDArray[np.floating[Any]]) -> Distribution:
        bits = values.view(self.format.bits)
        ids = np.flatnonzero(bits != 0)  # not the values: numpy compares and widens fp16 slowly
        fp16 = self.format is FP16
        listed = _FP16_VALUES[bits[ids]] if fp16 else values[ids].astype(np.float64)
        return _normalised(ids, listed, 0.0, values.size)


@dataclass(frozen=True, slots=True)
class Sparse(ByteCodec):
    """A codec that sends the probabilities of the most likely tokens, at most `k`, in fp16.

    If `kind` is TOP_P, the tokens are the fewest that sum to `mass` (DRAGON, 0.8). If `kind` is
    RENORMALISED, they are the `k` likeliest (SPECFED). Both are scaled to sum 1. If `kind` is
    RESIDUAL, the sum of all other tokens is sent, too, and spread evenly over them (SPECFED). A
    sum or probability that rounds to 0 in fp16 is not sent.
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
        total, kind = checked_sum(p, self.vocabulary), self.kind
        ids = np.sort(top_p(p, self.mass * total) if kind is Kind.TOP_P else top_k(p, self.k))
        values, rest, tail = p[ids], 0.0, b""
        scale = values.max()
        if kind is Kind.RESIDUAL:
            values = values.astype(np.float64)
            rest = max(0.0, total - float(values.sum()))
            scale = max(float(values.max()), rest)
            half = np.array(rest / scale).astype(FP16.dtype)
            rest, tail = float(half), half.tobytes()
            if not rest:
                kind, tail = Kind.NO_RESIDUAL, b""
        rounded = _to_fp16(values / scale)
        if not rounded.all():
            listed = np.flatnonzero(rounded)
            ids, rounded = ids[listed], rounded[listed]
        low_bits = low_bits_of(ids)
        head = bytes((kind | low_bits << KIND_BITS,)) + varint(ids.size)
        code = head + rounded.tobytes() + tail + encode_support(ids, low_bits)
        sent = _normalised(ids, rounded.astype(np.float64), rest, self.vocabulary)
        return self._quantized(p, total, code, sent)

    @override
    def _decode(self, data: memoryview) -> tuple[Distribution, int]:
        kind, vocabulary = data[0] & _KINDS if data else 0, self.vocabulary
        residual = (Kind.RESIDUAL, Kind.NO_RESIDUAL)
        if kind not in (residual if self.kind is Kind.RESIDUAL else (self.kind,)):
            raise other_codec(self.name)
        count, start = read_varint(data)
        if not 0 < count <= min(self.k, vocabulary):
            raise CodecError(f"payload lists {count} tokens; discard it")
        has_rest = kind == Kind.RESIDUAL
        if has_rest and count == vocabulary:
            raise CodecError("payload has a residual but lists all tokens; discard it")
        values_end = start + FP16.dtype.itemsize * (count + has_rest)
        if len(data) <= values_end:
            raise CodecError("payload ends before its last value; discard it")
        values = _half_values(data, start, count + has_rest)
        rest = float(values[count]) if has_rest else 0.0
        ids, length = decode_support(data[values_end:], count, data[0] >> KIND_BITS, vocabulary)
        return _normalised(ids, values[:count], rest, vocabulary), values_end + length
