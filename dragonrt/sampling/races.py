"""Exponential races: argmax p(x) / E(x) is an exact sample of p (SPEC 1.2).

Two distributions raced with the same noise agree if they are close. `race` is the definition; the
others find the same winner with fewer logarithms.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution
from dragonrt.sampling.noise import Noise

_FEW = 1 << 14  # exponentials: up to this number, computing all is faster than a search
_HEAVY = 64  # a token is heavy above this multiple of the average probability
_NEAR = 256.0  # average number of exponentials in the first search
_WIDER = 16.0  # factor by which each further search is wider
_SPARSE = 8  # at most this share of the tokens is worth listing


def race(p: Distribution, exponentials: NDArray[np.float64]) -> int:
    """Return argmax p(x) / E(x); ties: the lowest id. `exponentials` are Exp(1), float64 [V]."""
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
    """Return the winner of the race of `p` with the exponentials of `step`."""
    if p.rest == 0:
        return _winner(noise, step, p.vocabulary, p.ids, p.probabilities)
    if p.vocabulary <= _FEW:
        return race(p, noise.exponentials(step, p.vocabulary))
    other, exponential = _first_unlisted(noise, step, p)
    listed = _winner(noise, step, p.vocabulary, p.ids, p.probabilities)
    own = noise.exponentials(step, p.vocabulary, np.array((listed,)))
    return _first(p, listed, p.probability(listed) / float(own[0]), other, exponential)


def race_dense(noise: Noise, step: int, p: NDArray[np.floating[Any]]) -> int:
    """Return the winner of the race of all probabilities, floating [V]."""
    if np.count_nonzero(p > 0) > max(1, p.size // _SPARSE):
        return _winner(noise, step, p.size, None, p)
    possible = np.flatnonzero(p)
    return _winner(noise, step, p.size, possible, p[possible])


def _first(p: Distribution, listed: int, score: float, other: int, exponential: float) -> int:
    """Return the winner: `listed` with its score, or `other`, which `p` does not list."""
    lead = score - p.rest_density / exponential
    return listed if lead > 0 or (lead == 0 and listed < other) else other


def _winner(
    noise: Noise,
    step: int,
    vocabulary: int,
    ids: NDArray[np.int64] | None,
    p: NDArray[np.floating[Any]],
) -> int:
    """Return the first of `ids`, int64 [K], increasing (None: all tokens), that maximises p / E."""
    if p.size > _FEW:
        chosen = _possible_winners(noise, step, vocabulary, ids, p)
        ids, p = chosen if ids is None else ids[chosen], p[chosen]
    if ids is not None and ids.size == 1:
        return int(ids[0])  # the only candidate wins without noise
    place = int((p / noise.exponentials(step, vocabulary, ids)).argmax())
    return place if ids is None else int(ids[place])


def _possible_winners(
    noise: Noise,
    step: int,
    vocabulary: int,
    ids: NDArray[np.int64] | None,
    p: NDArray[np.floating[Any]],
) -> NDArray[np.int64]:
    """Return the places of `ids` that may win: int64, increasing.

    A token left out is lighter than `share` and its E is at least `bound`, so its score is below
    share / bound; a token that is kept reaches that score. `below` also includes tokens above the
    bound, by a margin far above rounding.
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
    """Return the token of the smallest E among those that `p` does not list, and that E."""
    bound = _NEAR / p.vocabulary
    while True:
        near = np.setdiff1d(noise.below(step, p.vocabulary, bound), p.ids, assume_unique=True)
        exponentials = noise.exponentials(step, p.vocabulary, near)
        if exponentials.min(initial=np.inf) < bound:
            first = int(exponentials.argmin())
            return int(near[first]), float(exponentials[first])
        bound *= _WIDER
