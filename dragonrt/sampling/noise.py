"""Keyed randomness: every number is a pure function of (seed, purpose, side, step) (SPEC 0).

No number depends on the order of calls, so arrival, retries and rollbacks cannot change it. Both
sides have the seed, so each can compute the other's numbers.

Philox4x64-10 (Salmon et al., 2011) gives single 64-bit words at chosen counters; numpy's Philox
gives a whole stream. A stream has blocks of four words: the counter b + 1 gives block b. A race
over a large vocabulary needs about a dozen words, so computing all takes longer.

A race is argmax p(x) / E(x), an exact sample of p (SPEC 1.2). Two distributions that race with the
same noise agree if they are close. `race` is the definition; the others find the same winner with
fewer logarithms.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.random import Philox
from numpy.typing import NDArray

from dragonrt.distributions import Distribution
from dragonrt.errors import SamplingError
from dragonrt.side import Side

_MULTIPLIERS = np.array((0xD2E7470EE14C6C93, 0xCA5A826395121157), dtype="<u8").reshape(2, 1)
_HALVES = _MULTIPLIERS.view("<u4").astype("<u8").reshape(2, 1, 1, 2)  # low, high
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10


def philox_words(key: tuple[int, int], step: int, words: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the 64-bit words at the indexes `words`, int64 [K], of a random stream: uint64 [K].

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


class Purpose(IntEnum):
    """What a random number is used for. Numbers for different purposes are independent."""

    RACE = 1  # the exponentials of the coupled rules, and the token after a block (SPEC 1.2, 2)
    DRAFT = 2  # a side's draft
    ACCEPT = 3  # the test of a draft
    RESAMPLE = 4  # the replacement of a rejected draft
    CHOICE = 5  # which side's token becomes the target (Algorithm 1)
    AGGREGATOR = 6  # who aggregates, where it is drawn (SPEC 1.3)
    PART = 8  # the seed of a later part of a question


class Noise:
    """The random numbers of one answer, keyed by its `seed`, an unsigned 64-bit integer.

    Philox is keyed with (seed, purpose and side) and its counter starts at (0, step, 0, 0), so no
    two streams overlap. Thread-safe. Raises SamplingError for a seed out of range.
    """

    __slots__ = ("_seed",)

    def __init__(self, seed: int) -> None:
        if not 0 <= seed < 2**64:
            raise SamplingError(f"seed {seed} is not between 0 and 2^64 - 1; choose one that is")
        self._seed = seed

    def exponentials(
        self, step: int, vocabulary: int, ids: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Return a step's noise E(x) ~ Exp(1), above 0: of the tokens `ids` [K], or of all [V].

        A token's value does not depend on the size of the vocabulary or on the side.
        """
        if ids is None:
            return _exponential(self._race_bits(step, vocabulary))
        scarce = vocabulary > _WHOLE + _APIECE * ids.size
        if scarce and self._cached(step, vocabulary) is None:
            return _exponential(philox_words(self._key(Purpose.RACE, None), step, ids))
        return _exponential(self._race_bits(step, vocabulary)[ids])

    def below(self, step: int, vocabulary: int, bound: float) -> NDArray[np.int64]:
        """Return all tokens x with noise E(x) < `bound`, ascending, and maybe a few just above it.

        A race looks for its winner there. It costs a comparison per token, and no logarithm.
        """
        least = math.exp(-bound) - 1e-9
        bits = self._race_bits(step, vocabulary)
        if least <= 0:
            return np.arange(vocabulary)
        return np.flatnonzero(bits >= np.uint64(int(least * 2.0**64)))

    def _race_bits(self, step: int, vocabulary: int) -> NDArray[np.uint64]:
        cached = self._cached(step, vocabulary)
        if cached is None:
            cached = self._stream(Purpose.RACE, None, step).random_raw(vocabulary)
            slots = max(_MIN_SLOTS, _CACHED_NUMBERS // vocabulary)
            _races[vocabulary, (step + self._seed) % slots] = self._seed, step, cached
        return cached

    def _cached(self, step: int, vocabulary: int) -> NDArray[np.uint64] | None:
        slots = max(_MIN_SLOTS, _CACHED_NUMBERS // vocabulary)
        found = _races.get((vocabulary, (step + self._seed) % slots))
        return found[2] if found and found[:2] == (self._seed, step) else None

    def uniform(self, purpose: Purpose, side: Side | None, step: int) -> float:
        """Return the random number in [0, 1) of this purpose, side (None: both sides) and step."""
        return int(self._stream(purpose, side, step).random_raw() >> 11) * 2.0**-53

    def seed_of(self, part: int) -> int:
        """Return the seed of sub-question `part`, counted from 0; part 0 has the answer's seed."""
        return int(self._stream(Purpose.PART, None, part).random_raw()) if part else self._seed

    def _stream(self, purpose: Purpose, side: Side | None, step: int) -> Philox:
        key = np.array(self._key(purpose, side), dtype=np.uint64)
        return Philox(key=key, counter=np.array((0, step, 0, 0), dtype=np.uint64))

    def _key(self, purpose: Purpose, side: Side | None) -> tuple[int, int]:
        return self._seed, purpose << 8 | _SIDE_CODES[side]


_SIDE_CODES: dict[Side | None, int] = {None: 0, "device": 1, "cloud": 2}
_CACHED_NUMBERS = 1 << 23  # 64 MiB of bits: 1024 steps at 8k tokens, 55 at 152k
_MIN_SLOTS = 4
# The newest races of all sessions, by vocabulary and slot: bounded together, however many there
# are, and read and replaced by one atomic operation each.
_races: dict[tuple[int, int], tuple[int, int, NDArray[np.uint64]]] = {}
# Single words cost as much as a stream of _WHOLE words, plus _APIECE words for each.
_WHOLE = 1 << 16
_APIECE = 1 << 7


def _exponential(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    # 52 bits and a half: exactly representable and never 0 or 1, so its logarithm is never 0.
    uniform = (bits >> np.uint64(12)) + 0.5
    uniform *= 2.0**-52
    race: NDArray[np.float64] = np.log(uniform, out=uniform)
    return np.negative(race, out=race)


_FEW = 1 << 14  # exponentials: up to this number, computing all is faster than a search
_HEAVY = 64  # a token is heavy above this multiple of the average probability
_NEAR = 256.0  # average number of exponentials in the first search
_WIDER = 16.0  # factor by which each further search is wider
_SPARSE = 8  # at most this share of the tokens is worth listing


def race(p: Distribution, exponentials: NDArray[np.float64]) -> int:
    """Return argmax p(x) / E(x), ties: the lowest id; `exponentials` are all E(x), float64 [V]."""
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
    """Return argmax p(x) / E(x), a sample of `p`; `noise` gives the exponentials E of `step`."""
    if p.rest == 0:
        return _winner(noise, step, p.vocabulary, p.ids, p.probabilities)
    if p.vocabulary <= _FEW:
        return race(p, noise.exponentials(step, p.vocabulary))
    other, exponential = _first_unlisted(noise, step, p)
    listed = _winner(noise, step, p.vocabulary, p.ids, p.probabilities)
    own = noise.exponentials(step, p.vocabulary, np.array((listed,)))
    return _first(p, listed, p.probability(listed) / float(own[0]), other, exponential)


def race_dense(noise: Noise, step: int, p: NDArray[np.floating[Any]]) -> int:
    """Return the same token as `race_at`, given the probabilities of all tokens, floating [V]."""
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
