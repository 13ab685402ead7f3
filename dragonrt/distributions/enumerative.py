"""Rank and unrank K-subsets of n tokens, and compositions, to send each as one number.

Enumerative coding in an order that is cheap to compute: the n tokens are cut into two halves.
Subsets are ordered by their number of tokens in the lower half, the likeliest number first,
then by the rank within the lower half, then within the upper half. Each half is ranked in the same
way, down to one or two tokens. A rank is below C(n, K) and takes ⌈log2 C(n, K)⌉ bits: SQS Eq. (5),
SPEC 2.

A composition is n counts of sum ℓ (SQS Eq. (2)): an ℓ-subset of ℓ + n - 1 places (stars and bars).
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import comb, isqrt, lgamma, log, log2

import numpy as np
from numpy.typing import NDArray

_REMEMBERED = 1024  # larger subsets have binomials of kilobytes, which are computed each time


def subset_bits(n: int, k: int) -> int:
    """Return ⌈log2 C(n, k)⌉, exactly: the bits of a rank among the k-subsets of n ≥ k."""
    k = min(k, n - k)
    if k > _REMEMBERED:
        estimate, error = _log2_binomial(n, k)
        if abs(estimate - round(estimate)) > error:
            return int(estimate) + 1
    return (_binomial(n, k) - 1).bit_length()


def composition_bits(total: int, parts: int) -> int:
    """Return the bits to rank `parts` counts of sum `total`: ⌈log2 C(total+parts-1, total)⌉."""
    return subset_bits(total + parts - 1, total)


def is_subset_rank(rank: int, n: int, k: int) -> bool:
    """Return whether a received `rank` is valid for a `k`-subset of 0 … n - 1: below C(n, k)."""
    bits, k = subset_bits(n, k), min(k, n - k)
    if rank.bit_length() < bits:
        return True
    if k > _REMEMBERED:
        estimate, error = _log2_binomial(n, k)
        size = log2(rank >> (bits - 64)) + bits - 64
        if abs(size - estimate) > error:
            return size < estimate
    return rank < _binomial(n, k)


def is_composition_rank(rank: int, total: int, parts: int) -> bool:
    """Return whether a received `rank` is valid for compositions of `total` over `parts` counts."""
    return is_subset_rank(rank, total + parts - 1, total)


def rank_subset(ids: Sequence[int], n: int) -> int:
    """Return the number in 0 … C(n, k) - 1 that encodes `ids`, k increasing integers below `n`."""
    if 2 * len(ids) > n:
        ids = _complement(ids, n)
    return _rank(ids, 0, len(ids), 0, n)


def unrank_subset(rank: int, k: int, n: int) -> list[int]:
    """Return the `k` increasing integers below `n` that `rank_subset` encodes as `rank`."""
    ids: list[int] = []
    if 2 * k > n:
        _unrank(rank, n - k, 0, n, ids)
        return _complement(ids, n)
    _unrank(rank, k, 0, n, ids)
    return ids


def rank_composition(counts: NDArray[np.int64]) -> int:
    """Return the number ≥ 0 that encodes `counts` among lists of the same length and sum."""
    total = int(counts.sum())
    stars = np.repeat(np.arange(counts.size), counts) + np.arange(total)
    return rank_subset(stars.tolist(), total + counts.size - 1)


def unrank_composition(rank: int, total: int, parts: int) -> NDArray[np.int64]:
    """Return the counts, int64 [parts] of sum `total` that `rank_composition` encodes as `rank`."""
    stars = np.array(unrank_subset(rank, total, total + parts - 1), dtype=np.int64)
    return np.bincount(stars - np.arange(total), minlength=parts)


def _rank(ids: Sequence[int], first: int, last: int, start: int, n: int) -> int:
    """Return the rank of `ids[first:last]` as a subset of `start` … `start + n - 1`."""
    k = last - first
    if k == 0 or k == n:
        return 0
    if k == 1:
        return ids[first] - start
    if k == 2:
        return comb(ids[first + 1] - start, 2) + ids[first] - start
    lower = n // 2
    middle = bisect_left(ids, start + lower, first, last)
    rank = 0
    for in_lower, ways in _splits(lower, n - lower, k):
        if in_lower == middle - first:
            break
        rank += ways
    return (
        rank
        + _rank(ids, first, middle, start, lower) * _binomial(n - lower, last - middle)
        + _rank(ids, middle, last, start + lower, n - lower)
    )


def _unrank(rank: int, k: int, start: int, n: int, ids: list[int]) -> None:
    """Append the k-subset of `start` … `start + n - 1` with that rank to `ids`."""
    if k == 0:
        return
    if k == n:
        ids.extend(range(start, start + n))
        return
    if k == 1:
        ids.append(start + rank)
        return
    if k == 2:
        high = (1 + isqrt(1 + 8 * rank)) // 2
        ids += (start + rank - comb(high, 2), start + high)
        return
    lower = n // 2
    for in_lower, ways in _splits(lower, n - lower, k):  # noqa: B007 - used after the loop
        if rank < ways:
            break
        rank -= ways
    in_upper = k - in_lower
    lower_rank, upper_rank = divmod(rank, _binomial(n - lower, in_upper))
    _unrank(lower_rank, in_lower, start, lower, ids)
    _unrank(upper_rank, in_upper, start + lower, n - lower, ids)


def _splits(lower: int, upper: int, k: int) -> Iterator[tuple[int, int]]:
    """Yield (m, C(lower, m)·C(upper, k - m)), from the most frequent m outwards in both directions.

    Each product follows from its neighbour by small factors.
    """
    up = down = (k + 1) * (lower + 1) // (lower + upper + 2)
    least, most = max(0, k - upper), min(k, lower)
    above = below = _binomial(lower, up) * _binomial(upper, k - up)
    yield up, above
    while up < most or down > least:
        if up < most:
            above = above * ((lower - up) * (k - up)) // ((up + 1) * (upper - k + up + 1))
            up += 1
            yield up, above
        if down > least:
            below = below * (down * (upper - k + down)) // ((lower - down + 1) * (k - down + 1))
            down -= 1
            yield down, below


def _log2_binomial(n: int, k: int) -> tuple[float, float]:
    """Return log2 C(n, k), k > 0, and a bound of its error."""
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2), 1e-11 * n


def _binomial(n: int, k: int) -> int:
    return _remembered(n, k) if k <= _REMEMBERED else comb(n, k)


_remembered = lru_cache(maxsize=1 << 14)(comb)


def _complement(ids: Sequence[int], n: int) -> list[int]:
    absent = np.ones(n, dtype=np.bool_)
    absent[np.asarray(ids, dtype=np.int64)] = False
    return np.flatnonzero(absent).tolist()
