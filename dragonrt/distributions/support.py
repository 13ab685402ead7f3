"""A sorted set of token ids in few bytes: the Elias-Fano code.

First come the `low_bits` lowest bits of all ids. Then comes one unary bit string: the i-th id sets
the bit `(id >> low_bits) + i`. The string ends in the byte of its last set bit. That is about `2 +
log2(largest / count)` bits per id, within half a bit of the entropy of a random set. Frequent
tokens have small ids, so they cost less.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions.distribution import FEW
from dragonrt.errors import CodecError

MAX_LOW_BITS = 31


def low_bits_of(ids: NDArray[np.int64]) -> int:
    """Return the number of low bits per id with the shortest code, 0 … 31."""
    return ((int(ids[-1]) + 1) // ids.size).bit_length() - 1 if ids.size <= ids[-1] else 0


def encode_support(ids: NDArray[np.int64], low_bits: int) -> bytes:
    """Return the code of `ids`, int64 [K], K ≥ 1, strictly increasing, below 2^31."""
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
    """Return the `count` ≥ 1 ids of the code that begins `data`, and the code's length in bytes.

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
