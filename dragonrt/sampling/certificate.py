"""Proof of the winner of a mixture's race from a part of the other side's distribution (SPEC 1.8).

A side knows its own distribution, some entries of the other's, and a bound on the rest. So each
token's score lies in an interval. A token wins if its lowest score exceeds every other's highest. A
certificate changes when a winner is known, never which token wins.

Only tokens on one of the two lists can win. Without a cut, an unlisted token's score is below tau
times each side's weighted best, and tau is below one half. With a cut, the lists hold the
probabilities that reach tau times `cut_level`, and the sampler removes unlisted tokens.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution
from dragonrt.distributions.protocol import StepNoise
from dragonrt.distributions.race_codec import OwnRace, RaceEntries
from dragonrt.distributions.truncation import top_k
from dragonrt.sampling.samplers import Sampler

SMALL_TOP_K = 16
"""The largest top-k with a certificate: a larger one would need many entries."""

_MARGIN = 1e-9
"""Relative margin of bounds: far above the rounding of a score."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The winner, or None if unproved; then `missing` are the tokens whose entries would prove it.

    `missing`, int64 [K], are on the own list and not on the other's, the most likely first.
    """

    winner: int | None
    missing: NDArray[np.int64]


def certifies(sampler: Sampler) -> bool:
    """Return whether a winner after this sampler can be proved from lists of entries."""
    return sampler.temperature == 0 or (sampler.top_p == 1 and sampler.top_k <= SMALL_TOP_K)


def cuts(sampler: Sampler) -> bool:
    """Return whether the sampler may cut off the winner of the race."""
    return sampler.temperature > 0 and (sampler.top_k > 0 or sampler.min_p > 0)


def cut_level(sampler: Sampler, p: NDArray[np.floating[Any]]) -> float:
    """Return the least probability of `p` that a cutting sampler keeps, relative to the largest."""
    largest = float(p.max())
    level = 0.0
    if sampler.min_p > 0:
        level = sampler.min_p**sampler.temperature
    if sampler.top_k > 0:
        kept = top_k(p, sampler.top_k)
        if kept.size == sampler.top_k:
            level = max(level, float(p[kept[-1]]) / largest)
    return level


def certificate(
    sampler: Sampler,
    noise: StepNoise,
    own: OwnRace,
    theirs: RaceEntries,
    weights: tuple[float, float],
) -> Certificate:
    """Return the winner of the mixture of `own` and `theirs`, or the entries that are missing.

    `noise` is that of the step at the sampler's temperature.
    """
    vocabulary = own.vocabulary
    ids = np.union1d(theirs.ids, own.listed)
    known = np.isin(ids, theirs.ids, assume_unique=True)
    low, high = np.zeros(ids.size), np.zeros(ids.size)
    low[known] = high[known] = theirs.probabilities
    raced = noise(vocabulary, ids)
    if cuts(sampler):
        high[~known] = theirs.ceiling(None)
    else:
        high[~known] = theirs.ceiling(noise) * raced[~known]
    mine = _of(own, ids)
    low, high = (weights[0] * mine + weights[1] * each for each in (low, high))
    high[~known] *= 1 + _MARGIN
    scores = low / raced, high / raced
    if cuts(sampler):
        return _certified_cut(sampler, ids, known, low, high, scores)
    return _certified(ids, known, *scores, np.ones(ids.size, np.bool_))


def _of(own: Distribution, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the probabilities of tokens, listed or not."""
    at = np.minimum(own.ids.searchsorted(ids), own.ids.size - 1)
    return np.where(own.ids[at] == ids, own.probabilities[at], 0.0)


def _certified(
    ids: NDArray[np.int64],
    known: NDArray[np.bool_],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    eligible: NDArray[np.bool_],
) -> Certificate:
    """Return the certificate for scores within `low` … `high`; ties: the lower known id."""
    first = int(np.where(eligible, low, -1.0).argmax())
    doubtful = ~known & eligible & (high >= low[first])
    others = doubtful.copy()
    others[first] = False
    if eligible[first] and not others.any():
        return Certificate(int(ids[first]), ids[:0])
    missing = np.flatnonzero(doubtful)
    return Certificate(None, ids[missing[np.argsort(-high[missing], kind="stable")]])


def _certified_cut(
    sampler: Sampler,
    ids: NDArray[np.int64],
    known: NDArray[np.bool_],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    scores: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Certificate:
    """Return the certificate for probabilities within `low` … `high`; the winner must be kept."""
    kept, cut = _kept_surely(sampler, low, high), _cut_surely(sampler, low, high)
    doubtful = ~known & ~cut
    if not doubtful.any():  # every token that may be kept is known, so the sampler decides
        here = np.flatnonzero(~cut)
        sampled = sampler(Distribution(ids[here], low[here], 0.0, int(ids[-1]) + 1))
        kept = np.isin(ids, sampled.ids, assume_unique=True)
        return _certified(ids, known, *scores, kept)
    first = int(np.where(kept, scores[0], -1.0).argmax())
    others = ~cut & (scores[1] >= scores[0][first]) & ~(kept & known)
    others[first] = False
    if kept[first] and not others.any():
        return Certificate(int(ids[first]), ids[:0])
    missing = np.flatnonzero(doubtful)
    return Certificate(None, ids[missing[np.argsort(-high[missing], kind="stable")]])


def _kept_surely(
    sampler: Sampler, low: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.bool_]:
    kept: NDArray[np.bool_] = low >= sampler.min_p**sampler.temperature * float(high.max()) * (
        1 + _MARGIN
    )
    if sampler.top_k > 0:
        above = (high[None, :] >= low[:, None] * (1 - _MARGIN)).sum(axis=1) - 1  # itself, too
        kept &= above < sampler.top_k
    return kept


def _cut_surely(
    sampler: Sampler, low: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.bool_]:
    cut: NDArray[np.bool_] = high < sampler.min_p**sampler.temperature * float(low.max()) * (
        1 - _MARGIN
    )
    if sampler.top_k > 0:
        above = (low[None, :] > high[:, None] * (1 + _MARGIN)).sum(axis=1)
        cut |= above >= sampler.top_k
    return cut
