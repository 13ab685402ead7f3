"""The most likely tokens of a dense vector, found without sorting the vocabulary."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SORTED_WHOLE = 128  # up to this size one sort costs less than a search by threshold
_THRESHOLDS = tuple(2.0**-exponent for exponent in (7, 12, 16, 22, 33))  # of the largest entry


def top_k(p: NDArray[np.floating[Any]], k: int) -> NDArray[np.int64]:
    """Return the indices of the `k` largest non-zero entries of `p` [V], descending.

    Fewer than `k` if fewer entries are above zero; ties: lower index.
    """
    for ids in _heads(p):
        if ids.size >= k:
            break
    return _descending(p, ids)[:k]


def top_p(p: NDArray[np.floating[Any]], mass: float) -> NDArray[np.int64]:
    """Return the indices of the fewest entries of `p` [V] that sum to `mass`, descending.

    The entry that crosses `mass` is included, so one entry above zero suffices for a result. Ties:
    lower index.
    """
    for ids in _heads(p):
        head = p[ids]
        if head.sum(dtype=np.float64) >= mass:
            break
    order = np.argsort(-head, kind="stable")
    cumulated = head[order].cumsum(dtype=np.float64)
    return ids[order[: int(cumulated.searchsorted(mass)) + 1]]


def _heads(p: NDArray[np.floating[Any]]) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of all entries above a threshold that falls stepwise to zero."""
    if p.size > _SORTED_WHOLE:
        largest = float(p.max())
        for threshold in _THRESHOLDS:
            yield np.flatnonzero(p >= threshold * largest)
    yield np.flatnonzero(p > 0)


def _descending(p: NDArray[np.floating[Any]], ids: NDArray[np.int64]) -> NDArray[np.int64]:
    return ids[np.argsort(-p[ids], kind="stable")]
