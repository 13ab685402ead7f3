"""An uplink or downlink that is now slow, now fast: a two-state Markov channel (QSV section V).

Time is cut in slots; in each the rate is the low or the high one, and from slot to slot it changes
with the given probabilities. The state of any slot is a pure function of (seed, direction, slot),
so any time can be asked in any order.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dragonrt.errors import LinkError

Direction: TypeAlias = Literal["up", "down"]

_BLOCK = 4096  # slots whose states are computed at a time


@dataclass(frozen=True, slots=True)
class MarkovRates:
    """Rates `low` <= `high` in bit/s, and the chances per slot of `slot_s` seconds to change.

    `to_low` is the probability that a slot after one of the high rate has the low one, `to_high`
    that one after the low rate has the high one; both lie strictly between 0 and 1. Raises
    LinkError for anything else.
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
        """The stationary probability of the low rate."""
        return self.to_low / (self.to_low + self.to_high)

    @property
    def mean(self) -> float:
        """The rate over a long time, in bit/s."""
        return self.low_share * self.low + (1 - self.low_share) * self.high


class MarkovChannel:
    """The course of one direction's rate over time; it starts in the stationary distribution."""

    def __init__(self, rates: MarkovRates, seed: int = 0, direction: Direction = "up") -> None:
        self.rates = rates
        # Not the keys of the jitter, which are 0 and 1.
        self._key = (seed % 2**64, 2 if direction == "up" else 3)
        self._alternates = rates.to_low + rates.to_high > 1  # a change is likelier than none
        self._known: tuple[int, NDArray[np.bool_]] | None = None  # the block asked last

    def rate_at(self, time_s: float) -> float:
        """The rate in bit/s at `time_s` >= 0."""
        return self._rate(int(time_s / self.rates.slot_s))

    def departure_s(self, ready_s: float, bits: float) -> float:
        """When the last of `bits` has left that start at `ready_s`: the rate is integrated."""
        slot, now_s = int(ready_s / self.rates.slot_s), ready_s
        while True:
            rate, end_s = self._rate(slot), (slot + 1) * self.rates.slot_s
            room = rate * (end_s - now_s)
            if bits <= room:
                return now_s + bits / rate
            bits -= max(0.0, room)
            slot, now_s = slot + 1, max(now_s, end_s)

    def _rate(self, slot: int) -> float:
        block, index = divmod(slot, _BLOCK)
        if self._known is None or self._known[0] != block:
            self._known = block, self._block(block)
        return self.rates.low if self._known[1][index] else self.rates.high

    def _block(self, block: int) -> NDArray[np.bool_]:
        """Which slots of a block have the low rate."""
        is_low, decisive = self._decisions(block)
        last = np.maximum.accumulate(np.where(decisive, np.arange(_BLOCK), -1))
        low = is_low[last]
        if last[0] < 0:
            low[last < 0] = self._low_before(block)
        if self._alternates:
            low ^= (np.arange(_BLOCK) - last) % 2 == 1  # undecided ones follow the slot numbered -1
        return low

    def _low_before(self, block: int) -> bool:
        """Whether the last slot before a block has the low rate."""
        while True:
            block -= 1
            is_low, decisive = self._decisions(block)
            if decisive.any():  # as in block 0; a whole block of changes comes out where it began
                last = int(np.flatnonzero(decisive)[-1])
                return bool(is_low[last] ^ (self._alternates and (_BLOCK - 1 - last) % 2 == 1))

    def _decisions(self, block: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """What a block's slots would be, and for which that holds whatever was before.

        A slot's number u makes it low if u < P(low | state before). Numbers below or above both
        of these probabilities decide without the state before; between them it is kept, or
        changed if a change is the likelier. So nothing before the last decisive slot matters.
        """
        after_low, after_high = 1 - self.rates.to_high, self.rates.to_low
        philox = np.random.Philox(
            key=np.array(self._key, np.uint64), counter=np.array((0, block, 0, 0), np.uint64)
        )
        u = np.random.Generator(philox).random(_BLOCK)
        is_low = u < min(after_low, after_high)
        decisive = is_low | (u >= max(after_low, after_high))
        if block == 0:
            is_low[0], decisive[0] = u[0] < self.rates.low_share, True
        return is_low, decisive
