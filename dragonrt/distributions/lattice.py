"""Distributions whose probabilities are whole multiples of 1/ℓ (QSV III-B, SQS Alg. 2, SPEC 2)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions.distribution import Distribution
from dragonrt.distributions.truncation import top_k


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
        """Return the distribution q̂, which lists the support only."""
        listed = np.flatnonzero(self.counts)
        probabilities = self.counts[listed] / self.resolution
        return Distribution(self.ids[listed], probabilities, 0.0, self.vocabulary)


def round_to_lattice(q: NDArray[np.float64], resolution: int) -> NDArray[np.int64]:
    """Return the counts of the lattice point nearest to `q`, float64 [K] of sum 1: SQS Alg. 2.

    int64 [K], not negative, of the sum `resolution`. Among equal errors, which Alg. 2 leaves open,
    the lower index gets the greater count.
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
