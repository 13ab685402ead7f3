"""Next-token distributions as values: mixtures, distance, entropy, and the most likely tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.errors import CodecError, DistributionError

FEW = 16
"""Up to this many tokens a Python loop is faster than numpy; the bits are the same."""


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """A next-token distribution: the listed tokens' probabilities, and equal ones for all others.

    `ids` int64 [K], K ≥ 1, strictly increasing; `probabilities` float64 [K]; `rest` the total mass
    of the `vocabulary - K` unlisted tokens. The constructor checks nothing; codecs do.
    """

    ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    rest: float
    vocabulary: int

    @classmethod
    def from_dense(cls, p: NDArray[np.floating[Any]]) -> Distribution:
        """Return the distribution with the probabilities `p`, floating [V]; zeros are not listed.

        It may share the memory of `p`: do not change `p` afterwards.
        """
        positive = p > 0
        if positive.all():
            return cls(every_token(p.size), p.astype(np.float64, copy=False), 0.0, p.size)
        ids = np.flatnonzero(positive)
        return cls(ids, p[ids].astype(np.float64), 0.0, p.size)

    def to_dense(self) -> NDArray[np.float64]:
        """Return the probabilities of all tokens, listed or not, by token id: float64 [V]."""
        p = np.full(self.vocabulary, self.rest_density)
        p[self.ids] = self.probabilities
        return p

    def probability(self, token: int) -> float:
        position = int(self.ids.searchsorted(token))
        if position < self.ids.size and self.ids[position] == token:
            return float(self.probabilities[position])
        return self.rest_density

    @property
    def rest_density(self) -> float:
        """Return the probability of each unlisted token: an equal part of `rest`."""
        others = self.vocabulary - self.ids.size
        return self.rest / others if others else 0.0

    def __len__(self) -> int:
        return self.ids.size


def checked_sum(p: NDArray[np.floating[Any]], vocabulary: int) -> float:
    """Check the probabilities `p`, floating [V], not necessarily normalised; return their sum.

    Raises CodecError for another shape, negative or non-finite entries, or a zero sum.
    """
    if p.shape != (vocabulary,):
        raise CodecError(f"probabilities of shape {p.shape} where the codec expects {vocabulary}")
    total = float(p.sum(dtype=np.float64))
    if not (p.min() >= 0 and 0 < total < np.inf):
        raise CodecError("probabilities must be finite, not negative, and not all zero")
    return total


@lru_cache(maxsize=8)
def every_token(vocabulary: int) -> NDArray[np.int64]:
    """Return all token ids, 0 … V - 1: int64 [V], read-only, as one shared array per vocabulary."""
    ids = np.arange(vocabulary)
    ids.setflags(write=False)
    return ids


def union_support(distributions: Sequence[Distribution]) -> NDArray[np.int64]:
    """Return the tokens that any of the distributions lists: int64 [U], strictly increasing.

    Raises DistributionError if the vocabularies differ.
    """
    vocabulary = distributions[0].vocabulary
    for distribution in distributions:
        if distribution.vocabulary != vocabulary:
            raise _other_vocabulary(distribution, vocabulary)
        if distribution.ids.size == vocabulary:
            return distribution.ids
    ids = np.concatenate([distribution.ids for distribution in distributions])
    ids.sort(kind="stable")  # the inputs are sorted runs, which the stable sort only merges
    first = np.empty(ids.size, dtype=np.bool_)
    first[:1] = True
    np.not_equal(ids[1:], ids[:-1], out=first[1:])
    return ids[first]


def _other_vocabulary(distribution: Distribution, vocabulary: int) -> DistributionError:
    return DistributionError(
        f"vocabularies of {vocabulary} and {distribution.vocabulary} tokens do not mix; "
        "use models with one tokenizer"
    )


def probabilities_on(distribution: Distribution, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the probabilities of `ids`, a sorted superset of the listed tokens: float64 [U]."""
    if ids.size == distribution.ids.size:
        return distribution.probabilities
    p = np.full(ids.size, distribution.rest_density)
    p[ids.searchsorted(distribution.ids)] = distribution.probabilities
    return p


def mix(distributions: Sequence[Distribution], weights: Sequence[float]) -> Distribution:
    """Return the mixture Σ w_i p_i (DRAGON Eq. 2, SPECFED), for weights that sum to one.

    Raises DistributionError if the vocabularies differ.
    """
    listed = 0
    for distribution in distributions:
        listed += distribution.ids.size
    if listed <= FEW:
        return _mix_few(distributions, weights)
    ids = union_support(distributions)
    others = distributions[0].vocabulary - ids.size
    probabilities = np.zeros(ids.size)
    density = 0.0
    for distribution, weight in zip(distributions, weights, strict=True):
        probabilities += weight * probabilities_on(distribution, ids)
        density += weight * distribution.rest_density
    return Distribution(ids, probabilities, density * others, distributions[0].vocabulary)


def _mix_few(distributions: Sequence[Distribution], weights: Sequence[float]) -> Distribution:
    vocabulary, density = distributions[0].vocabulary, 0.0
    tables: list[dict[int, float]] = []
    for distribution in distributions:
        if distribution.vocabulary != vocabulary:
            raise _other_vocabulary(distribution, vocabulary)
        tables.append(
            dict(zip(distribution.ids.tolist(), distribution.probabilities.tolist(), strict=True))
        )
    ids = sorted(set().union(*tables))
    probabilities = [0.0] * len(ids)
    for distribution, table, weight in zip(distributions, tables, weights, strict=True):
        others = vocabulary - len(table)
        unlisted = distribution.rest / others if others else 0.0
        density += weight * unlisted
        for place, token in enumerate(ids):
            probabilities[place] += weight * table.get(token, unlisted)
    rest = density * (vocabulary - len(ids))
    return Distribution(np.array(ids), np.array(probabilities), rest, vocabulary)


def total_variation(a: Distribution, b: Distribution) -> float:
    """Return TV(a, b) = ½ Σ |a - b|, in [0, 1]. Raises DistributionError if vocabularies differ."""
    ids = union_support((a, b))
    listed = np.abs(probabilities_on(a, ids) - probabilities_on(b, ids)).sum()
    others = (a.vocabulary - ids.size) * abs(a.rest_density - b.rest_density)
    return 0.5 * (float(listed) + others)


def entropy(p: Distribution) -> float:
    """Return the entropy -Σ p ln p in nats."""
    listed = p.probabilities[p.probabilities > 0]
    nats = -float(listed @ np.log(listed))
    if p.rest > 0:
        nats -= p.rest * float(np.log(p.rest_density))
    return nats


_SORTED_WHOLE = 128  # up to this size one sort costs less than a search by threshold
_THRESHOLDS = tuple(2.0**-exponent for exponent in (7, 12, 16, 22, 33))  # of the largest entry


def top_k(p: NDArray[np.floating[Any]], k: int) -> NDArray[np.int64]:
    """Return the indices of the `k` largest non-zero entries of `p` [V], descending by entry.

    They are fewer if fewer entries are above zero. Of equal entries the lower index comes first.
    """
    for ids in _heads(p):
        if ids.size >= k:
            break
    return ids[np.argsort(-p[ids], kind="stable")[:k]]


def top_p(p: NDArray[np.floating[Any]], mass: float) -> NDArray[np.int64]:
    """Return the indices of the fewest entries of `p` [V] that sum to `mass`, descending by entry.

    `p` has an entry above zero. The entry that crosses `mass` is included. Of equal entries the
    lower index comes first.
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
