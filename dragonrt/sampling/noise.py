"""Keyed randomness: every number is a pure function of (seed, purpose, side, step) (SPEC 0).

Nothing is consumed in order, so neither arrival, retries, rollbacks nor who computes a step can
change a number; and both sides, knowing the seed, know each other's numbers.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.random import Philox
from numpy.typing import NDArray

from dragonrt.sampling.errors import SamplingError
from dragonrt.side import Side


class Purpose(IntEnum):
    """What a random number decides. The values are part of the protocol: never reuse one."""

    RACE = 1  # the exponentials of the coupled rules, and the token after a block (SPEC 1.2, 2)
    DRAFT = 2  # a side's draft
    ACCEPT = 3  # the test of a draft
    RESAMPLE = 4  # the replacement of a refused draft
    CHOICE = 5  # which side's token becomes the target (Algorithm 1)
    AGGREGATOR = 6  # who aggregates, where it is drawn (SPEC 1.3)


class Noise:
    """The random numbers of one session. `seed` is an unsigned 64-bit integer.

    Philox is keyed with (seed, purpose and side) and its counter starts at (0, step, 0, 0), so no
    two streams overlap. May be used from several threads. Raises SamplingError for another seed.
    """

    __slots__ = ("_races", "_seed")

    def __init__(self, seed: int) -> None:
        if not 0 <= seed < 2**64:
            raise SamplingError(f"seed {seed} is not between 0 and 2^64 - 1; choose one that is")
        self._seed = seed
        # Slot i holds the newest race whose step is i modulo the number of slots: bounded, and
        # read and replaced by one atomic operation each.
        self._races: dict[int, tuple[int, NDArray[np.uint64]]] = {}

    def exponentials(self, step: int, vocabulary: int) -> NDArray[np.float64]:
        """E_t(x) ~ Exp(1) for every token x: float64 [V], above 0, same on both sides.

        The value of a token does not depend on the size of the vocabulary.
        """
        return _exponential(self._race_bits(step, vocabulary))

    def exponentials_of(
        self, step: int, vocabulary: int, ids: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """E_t(x) of the tokens `ids` alone, float64 [K]: logarithms are the dear part of it."""
        return _exponential(self._race_bits(step, vocabulary)[ids])

    def _race_bits(self, step: int, vocabulary: int) -> NDArray[np.uint64]:
        slot = step % max(_MIN_SLOTS, min(_MAX_SLOTS, _CACHED_NUMBERS // vocabulary))
        cached = self._races.get(slot)
        if cached is not None and cached[0] == step and cached[1].size == vocabulary:
            return cached[1]
        bits: NDArray[np.uint64] = self._stream(Purpose.RACE, None, step).random_raw(vocabulary)
        self._races[slot] = (step, bits)
        return bits

    def uniform(self, purpose: Purpose, side: Side | None, step: int) -> float:
        """A number uniform in [0, 1), for `side` or, with None, for both sides together."""
        return int(self._stream(purpose, side, step).random_raw() >> 11) * 2.0**-53

    def _stream(self, purpose: Purpose, side: Side | None, step: int) -> Philox:
        key = np.array((self._seed, purpose << 8 | _SIDE_CODES[side]), dtype=np.uint64)
        return Philox(key=key, counter=np.array((0, step, 0, 0), dtype=np.uint64))


_SIDE_CODES: dict[Side | None, int] = {None: 0, "device": 1, "cloud": 2}
_CACHED_NUMBERS = 1 << 21  # 16 MiB of bits: the run-ahead at 8k tokens, 13 steps at 152k
_MIN_SLOTS = 4
_MAX_SLOTS = 64


def _exponential(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    # 52 bits and a half: exactly representable and never 0 or 1, so its logarithm is never 0.
    uniform = (bits >> np.uint64(12)) + 0.5
    uniform *= 2.0**-52
    race: NDArray[np.float64] = np.log(uniform, out=uniform)
    return np.negative(race, out=race)
