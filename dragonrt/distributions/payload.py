"""The bytes of a payload, and every check of bytes that came from the other side.

A payload, little endian, starts with the byte `kind | low_bits << 3`. Then follow
- for the dense kinds: the values of all V tokens;
- for a lattice point (whose `low_bits` say which code it is in): its bits;
- for the sparse kinds: the number K ≥ 1 of listed tokens (a varint of 7 bits a byte), their K
  values as fp16, for RESIDUAL one more for the sum of all the others, then the K ids (`support`).
Values are relative to the largest of them, so they lie between 0 and 1 and one of them is not 0.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions.distribution import Distribution
from dragonrt.distributions.errors import CodecError
from dragonrt.distributions.support import decode_support, encode_support, low_bits_of


class Kind(IntEnum):
    """What a payload is, in the three lowest bits of its first byte."""

    DENSE_FP16 = 1
    DENSE_FP32 = 2
    TOP_P = 3
    RENORMALISED = 4
    RESIDUAL = 5
    NO_RESIDUAL = 6  # from the codec with a residual, where none is left
    LATTICE = 7


_KIND_BITS = 3


@dataclass(frozen=True, slots=True)
class Format:
    """A float format whose bit patterns 0 … `one` are its values from 0 to 1, in order."""

    kind: Kind
    dtype: np.dtype[np.floating[Any]]
    bits: np.dtype[np.unsignedinteger[Any]]
    one: int


FP16 = Format(Kind.DENSE_FP16, np.dtype("<f2"), np.dtype("<u2"), 0x3C00)
FP32 = Format(Kind.DENSE_FP32, np.dtype("<f4"), np.dtype("<u4"), 0x3F800000)


def check_kind(payload: bytes, name: str, *kinds: Kind) -> None:
    """Raises CodecError unless the payload is of one of the kinds that the codec `name` writes."""
    if not payload or payload[0] & ((1 << _KIND_BITS) - 1) not in kinds:
        raise other_codec(name)


def other_codec(name: str) -> CodecError:
    """The error of a payload that the codec `name` did not write."""
    return CodecError(f"payload is not from the codec {name}; use one codec on both sides")


def lattice_tag(code: int) -> bytes:
    """The first byte of a payload that is a lattice point in the code of that number."""
    return bytes((Kind.LATTICE | code << _KIND_BITS,))


def encode_dense(form: Format, values: NDArray[np.floating[Any]]) -> bytes:
    """The payload of all values, floating [V], the largest of which is 1."""
    rounded = _to_fp16(values) if form is FP16 else values.astype(form.dtype)
    return bytes((form.kind,)) + rounded.tobytes()


def decode_dense(form: Format, payload: bytes, vocabulary: int) -> Distribution:
    """The distribution in a payload of `encode_dense`. Raises CodecError for any other bytes."""
    expected = 1 + vocabulary * form.dtype.itemsize
    if len(payload) != expected or payload[0] != form.kind:
        raise CodecError(
            f"payload is not the {expected} bytes of all {vocabulary} tokens; discard it"
        )
    if int(np.frombuffer(payload, form.bits, offset=1).max()) > form.one:
        raise CodecError("payload has a value that is not between 0 and 1; discard it")
    values = np.frombuffer(payload, form.dtype, offset=1).astype(np.float64)
    ids = np.flatnonzero(values > 0)
    if not ids.size:
        raise CodecError("payload has no value above zero; discard it")
    return _normalised(ids, values[ids], 0.0, vocabulary)


def encode_sparse(
    kind: Kind,
    ids: NDArray[np.int64],
    values: NDArray[np.floating[Any]],
    rest: float = 0.0,
) -> bytes:
    """The payload that lists `ids`, int64 [K], increasing, with `values`, floating [K].

    The largest of the values and `rest`, the sum of all others, is 1. An entry that fp16
    rounds to zero is not listed; kind RESIDUAL becomes NO_RESIDUAL where `rest` is rounded to zero.
    """
    rounded = _to_fp16(values)
    if not rounded.all():
        listed = np.flatnonzero(rounded)
        ids, rounded = ids[listed], rounded[listed]
    tail = b""
    if kind is Kind.RESIDUAL:
        tail = np.array(rest).astype(FP16.dtype).tobytes()
        if not any(tail):
            kind, tail = Kind.NO_RESIDUAL, b""
    low_bits = low_bits_of(ids)
    head = bytes((kind | low_bits << _KIND_BITS,)) + _varint(ids.size)
    return head + rounded.tobytes() + tail + encode_support(ids, low_bits)


def decode_sparse(payload: bytes, vocabulary: int, at_most: int) -> Distribution:
    """The distribution in a payload of `encode_sparse`, of at most so many listed tokens.

    Raises CodecError for any other bytes.
    """
    count, start = _read_varint(payload)
    if not 0 < count <= min(at_most, vocabulary):
        raise CodecError(f"payload lists {count} tokens; discard it")
    has_rest = payload[0] & ((1 << _KIND_BITS) - 1) == Kind.RESIDUAL
    if has_rest and count == vocabulary:
        raise CodecError("payload has a residual but lists all tokens; discard it")
    values_end = start + FP16.dtype.itemsize * (count + has_rest)
    if len(payload) <= values_end:
        raise CodecError("payload ends before its last value; discard it")
    encoded = np.frombuffer(payload, FP16.dtype, count=count + has_rest, offset=start)
    # Minus one turns the pattern of 0 into the largest: one comparison finds every bad value.
    if int((encoded.view(FP16.bits) - FP16.bits.type(1)).max()) >= FP16.one:
        raise CodecError("payload has a value that is not above 0 and up to 1; discard it")
    values = encoded.astype(np.float64)
    rest = float(values[count]) if has_rest else 0.0
    ids = decode_support(payload[values_end:], count, payload[0] >> _KIND_BITS, vocabulary)
    return _normalised(ids, values[:count], rest, vocabulary)


def _normalised(
    ids: NDArray[np.int64], values: NDArray[np.float64], rest: float, vocabulary: int
) -> Distribution:
    # Values of fp16 are multiples of 2^-24, their sum in float64 is exact in any order; for fp32
    # both sides rely on numpy's order of summation, which no instruction set changes.
    total = float(values.sum()) + rest
    return Distribution(ids, values / total, rest / total, vocabulary)


def _to_fp16(values: NDArray[np.floating[Any]]) -> NDArray[np.float16]:
    # Rounded by hand below the smallest normal value: numpy's own rounding raises the underflow
    # flag there, which makes the conversion of a vocabulary 15 times slower.
    subnormal = np.rint(values * 2.0**24) * 2.0**-24
    return np.where(values < 2.0**-14, subnormal, values).astype(FP16.dtype)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(payload: bytes) -> tuple[int, int]:
    """The varint behind the first byte, and where the bytes after it start."""
    number = 0
    for position, byte in enumerate(payload[1:5]):
        number |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            if position and not byte:
                break
            return number, position + 2
    raise CodecError("payload has no valid number of tokens; discard it")
