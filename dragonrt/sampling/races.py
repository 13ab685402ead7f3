"""Exponential races: argmax p(x) / E(x) is an exact sample of p, and two distributions raced with
the same exponentials agree whenever they are close (SPEC 1.2).

`race` is the definition. The others give the same winner from as little noise as decides it: its
logarithms are the dear part of a large vocabulary.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution
from dragonrt.sampling.noise import Noise

_FEW = 1 << 14  # so many exponentials cost less than to find those that matter
_HEAVY = 64  # a token is heavy with so many times the probability that all would have on average
_NEAR = 256.0  # so many exponentials, on average, are looked at first
_WIDER = 16.0  # then so many times as many
_SPARSE = 8  # at most this share of the tokens is worth listing


def race(p: Distribution, exponentials: NDArray[np.float64]) -> int:
    """argmax p(x) / E(x); ties: the lowest id. `exponentials` are i.i.d. Exp(1), float64 [V]."""
    scores = p.probabilities / exponentials[p.ids]
    position = int(scores.argmax())
    listed = int(p.ids[position])
    if p.rest == 0:
        return listed
    others = exponentials.copy()
    others[p.ids] = np.inf
    other = int(others.argmin())
    return _first(p, listed, float(scores[position]), other, float(others[other]))


def race_at(noise: Noise, step: int, p: Distribution) -> int:
    """The race of `p` with the exponentials of `step`."""
    if p.rest == 0:
        return _winner(noise, step, p.vocabulary, p.ids, p.probabilities)
    if p.vocabulary <= _FEW:
        return race(p, noise.exponentials(step, p.vocabulary))
    other, exponential = _first_unlisted(noise, step, p)
    listed = _winner(noise, step, p.vocabulary, p.ids, p.probabilities)
    own = noise.exponentials(step, p.vocabulary, np.array((listed,)))
    return _first(p, listed, p.probability(listed) / float(own[0]), other, exponential)


def race_dense(noise: Noise, step: int, p: NDArray[np.floating[Any]]) -> int:
    """The race of all probabilities, floating [V]."""
    if np.count_nonzero(p > 0) > max(1, p.size // _SPARSE):
        return _winner(noise, step, p.size, None, p)
    possible = np.flatnonzero(p)
    return _winner(noise, step, p.size, possible, p[possible])


def _first(p: Distribution, listed: int, score: float, other: int, exponential: float) -> int:
    """The winner: `listed` with its score, or `other`, which `p` does not list."""
    lead = score - p.rest_density / exponential
    return listed if lead > 0 or (lead == 0 and listed < other) else other


def _winner(
    noise: Noise,
    step: int,
    vocabulary: int,
    ids: NDArray[np.int64] | None,
    p: NDArray[np.floating[Any]],
) -> int:
    """The first of `ids`, int64 [K], increasing (None: all tokens), that maximises p / E."""
    if p.size > _FEW:
        chosen = _possible_winners(noise, step, vocabulary, ids, p)
        ids, p = chosen if ids is None else ids[chosen], p[chosen]
    if ids is not None and ids.size == 1:
        return int(ids[0])  # no noise is worth making
    place = int((p / noise.exponentials(step, vocabulary, ids)).argmax())
    return place if ids is None else int(ids[place])


def _possible_winners(
    noise: Noise,
    step: int,
    vocabulary: int,
    ids: NDArray[np.int64] | None,
    p: NDArray[np.floating[Any]],
) -> NDArray[np.int64]:
    """The places of those of `ids` of which one wins: int64, increasing.

    What is left out is lighter than `share`, and its E is at least `bound`: its score is below
    share / bound, and one that is not left out has that score. (`below` takes in tokens beyond the
    bound, too, by a margin far above the rounding of a logarithm or a quotient.)
    """
    share = _HEAVY * 2.0 ** -p.size.bit_length()  # a power of two: exact in every precision
    heavy = np.flatnonzero(p >= share)
    bound = _NEAR / vocabulary
    while (near := noise.below(step, vocabulary, bound)).size < vocabulary:
        if ids is not None:
            places = np.minimum(ids.searchsorted(near), ids.size - 1)
            near = places[ids[places] == near]
        places = np.union1d(heavy, near)
        tokens = places if ids is None else ids[places]
        scores = p[places] / noise.exponentials(step, vocabulary, tokens)
        if scores.max(initial=0.0) * bound >= share:
            return places
        bound *= _WIDER
    return np.arange(p.size)


def _first_unlisted(noise: Noise, step: int, p: Distribution) -> tuple[int, float]:
    """The token of the smallest E among those that `p` does not list, and that E."""
    bound = _NEAR / p.vocabulary
    while True:
        near = np.setdiff1d(noise.below(step, p.vocabulary, bound), p.ids, assume_unique=True)
        exponentials = noise.exponentials(step, p.vocabulary, near)
        if exponentials.min(initial=np.inf) < bound:
            first = int(exponentials.argmin())
            return int(near[first]), float(exponentials[first])
        bound *= _WIDER
