"""A link whose rate alternates between slow and fast: a two-state Markov channel (QSV section V).

Time has slots, each with the low or the high rate, which changes between slots with the given
probabilities. A slot's state is a function of (seed, direction, slot).
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from dragonrt.errors import LinkError

Direction: TypeAlias = Literal["up", "down"]

_BLOCK = 4096  # slots whose states are computed at a time


@dataclass(frozen=True, slots=True)
class MarkovRates:
    """Rates `low` <= `high` in bit/s, and the probabilities to change per slot of `slot_s` seconds.

    `to_low` is from the high rate to the low one, `to_high` back; both are above 0 and below 1.
    """

    low: float
    high: float
    to_low: float
    to_high: float
    slot_s: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high < float("inf"):
            raise LinkError("the rates of a Markov channel must be above 0, the low one no higher")
        if not (0 < self.to_low < 1 and 0 < self.to_high < 1):
            raise LinkError(
                "the transition probabilities of a Markov channel must lie between 0 and 1"
            )
        if not 0 < self.slot_s < float("inf"):
            raise LinkError("the slot of a Markov channel must be longer than 0")

    @property
    def low_share(self) -> float:
        """Return the stationary probability of the low rate."""
        return self.to_low / (self.to_low + self.to_high)


class MarkovChannel:
    """One direction's rate over time; it starts in the stationary distribution."""

    def __init__(self, rates: MarkovRates, seed: int = 0, direction: Direction = "up") -> None:
        self.rates = rates
        # Not the keys of the jitter, which are 0 and 1.
        self._key = (seed % 2**64, 2 if direction == "up" else 3)
        self._low = bytearray()  # of the slots so far, 1 for the low rate

    def rate_at(self, time_s: float) -> float:
        """Return the rate in bit/s at `time_s` >= 0."""
        return self._rate(int(time_s / self.rates.slot_s))

    def departure_s(self, ready_s: float, bits: float) -> float:
        """Return when the last of `bits` that start at `ready_s` has left."""
        slot, now_s = int(ready_s / self.rates.slot_s), ready_s
        while True:
            rate, end_s = self._rate(slot), (slot + 1) * self.rates.slot_s
            room = rate * (end_s - now_s)
            if bits <= room:
                return now_s + bits / rate
            bits -= max(0.0, room)
            slot, now_s = slot + 1, max(now_s, end_s)

    def _rate(self, slot: int) -> float:
        while slot >= len(self._low):
            self._extend()
        return self.rates.low if self._low[slot] else self.rates.high

    def _extend(self) -> None:
        """Compute the states of the next block of slots, from one uniform number each."""
        counter = np.array((0, len(self._low) // _BLOCK, 0, 0), np.uint64)
        philox = np.random.Philox(key=np.array(self._key, np.uint64), counter=counter)
        after_low, after_high = 1 - self.rates.to_high, self.rates.to_low
        chance = self.rates.low_share  # of the low rate in the first slot
        if self._low:
            chance = after_low if self._low[-1] else after_high
        for uniform in np.random.Generator(philox).random(_BLOCK).tolist():
            low = uniform < chance
            self._low.append(low)
            chance = after_low if low else after_high
