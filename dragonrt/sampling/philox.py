"""Philox4x64-10 (Salmon et al., 2011) at chosen counters of a stream; numpy's gives a whole stream.

A stream has blocks of four words; block b is a function of the key and the counter b + 1. A race
over a large vocabulary needs about a dozen words, and computing all takes longer.
"""

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = np.array((0xD2E7470EE14C6C93, 0xCA5A826395121157), dtype="<u8").reshape(2, 1)
_HALVES = _MULTIPLIERS.view("<u4").astype("<u8").reshape(2, 1, 1, 2)  # low, high
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10


def philox_words(key: tuple[int, int], step: int, words: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the words at the places `words`, int64 [K] of 0 … 2^62, of a stream: uint64 [K].

    The stream is that of numpy's Philox with `key` and the counter (0, `step`, 0, 0).
    """
    count = words.size
    # A state is four words; the rounds multiply the first and third and mix in the other two.
    factors = np.empty((2, count), "<u8")
    factors[0], factors[1] = (words >> 2) + 1, 0
    others = np.empty((2, count), "<u8")
    others[0], others[1] = step, 0
    # A product of 128 bits comes from four of 64, of the factors' halves: views see all halves.
    halves = factors.view("<u4").reshape(2, count, 2, 1)
    products = np.empty((2, count, 2, 2), "<u8")
    parts = products.view("<u4").reshape(2, count, 2, 2, 2)
    middle, high = np.empty((2, count), "<u8"), np.empty((2, count), "<u8")
    carry = middle.view("<u4").reshape(2, count, 2)[..., 1]
    for keys in _round_keys(key):
        np.multiply(halves, _HALVES, out=products)
        np.add(products[..., 0, 1], parts[..., 0, 0, 1], out=middle)
        np.add(middle, parts[..., 1, 0, 0], out=middle)  # at most 2^64 - 1
        np.add(products[..., 1, 1], parts[..., 1, 0, 1], out=high)
        np.add(high, carry, out=high)
        low = factors * _MULTIPLIERS
        np.bitwise_xor(high[::-1], others, out=factors)
        np.bitwise_xor(factors, keys, out=factors)
        others[:] = low[::-1]
    block = np.stack((factors[0], others[0], factors[1], others[1]))
    chosen: NDArray[np.uint64] = block[words & 3, np.arange(count)]
    return chosen


def _round_keys(key: tuple[int, int]) -> NDArray[np.uint64]:
    """Return the keys of all rounds, uint64 [rounds, 2, 1]: a Weyl sequence."""
    rounds = [
        [(word + number * weyl) % 2**64 for word, weyl in zip(key, _WEYL, strict=True)]
        for number in range(_ROUNDS)
    ]
    return np.array(rounds, dtype="<u8").reshape(_ROUNDS, 2, 1)
