"""Delay models: compute when bytes arrive, from their sending times and a seed.

A direction of a link is serialisation, then a one-way latency. Serialisation is a bit rate, a
Markov channel (QSV section V) or a Mahimahi trace; latency has jitter or is half of a recorded RTT.
Nothing overtakes. Header overhead of TCP and IP is not modelled.
"""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias, get_args

import numpy as np

from dragonrt.errors import LinkError

Direction: TypeAlias = Literal["up", "down"]

_BLOCK = 4096  # slots whose states are computed at a time


@dataclass(frozen=True, slots=True)
class MarkovRates:
    """The parameters of a two-state Markov channel, whose rate in a slot is `low` or `high` bit/s.

    Every `slot_s` seconds, high turns to low with probability `to_low`, low to high with `to_high`.
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


class MarkovChannel:
    """Computes when bits leave a link whose rate is a Markov chain, seeded for each direction."""

    def __init__(self, rates: MarkovRates, seed: int = 0, direction: Direction = "up") -> None:
        self.rates = rates
        # Not the keys of the jitter, which are 0 and 1.
        self._key = (seed % 2**64, 2 if direction == "up" else 3)
        self._low = bytearray()  # of the slots so far, 1 for the low rate

    def rate_at(self, time_s: float) -> float:
        """Return the rate in bit/s at `time_s` >= 0, in seconds since the link's start."""
        return self._rate(int(time_s / self.rates.slot_s))

    def departure_s(self, ready_s: float, bits: float) -> float:
        """Return when, in seconds, the last of `bits` has left, if sending starts at `ready_s`."""
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
        chance = after_high / (after_high + self.rates.to_high)  # of the low rate at first
        if self._low:
            chance = after_low if self._low[-1] else after_high
        for uniform in np.random.Generator(philox).random(_BLOCK).tolist():
            low = uniform < chance
            self._low.append(low)
            chance = after_low if low else after_high


JitterKind: TypeAlias = Literal["uniform", "normal", "sinusoidal"]

PACKET_BYTES = 1500  # the unit of arrival, and what one Mahimahi opportunity carries
NORMAL_CUT = 3.0  # normal jitter is cut off at this many standard deviations


@dataclass(frozen=True, slots=True)
class DeliveryTrace:
    """A Mahimahi trace: at each of `times_ms`, called an opportunity, up to 1500 bytes may leave.

    The times are milliseconds from the start of a lap. At the last one the trace starts again.
    """

    times_ms: tuple[int, ...]

    def __post_init__(self) -> None:
        times = self.times_ms
        if not times or times[0] < 0 or times[-1] <= 0 or any(b < a for a, b in pairwise(times)):
            raise LinkError(
                "a delivery trace must be one rising time in ms per line, the last above 0"
            )

    def time_s(self, opportunity: int) -> float:
        """Return the time in seconds of a sending opportunity, numbered from 0 over all repeats."""
        lap, index = divmod(opportunity, len(self.times_ms))
        return (lap * self.times_ms[-1] + self.times_ms[index]) / 1000

    def first_from(self, time_s: float) -> int:
        """Return the number of the first sending opportunity from `time_s` on, over all repeats."""
        period = self.times_ms[-1]
        lap, within = divmod(time_s * 1000, period)
        # A time computed as ms/1000 may be rounded up; a nanosecond is no delay.
        if within <= 1e-6 and lap > 0:
            lap, within = lap - 1, period  # the end of a lap: its last opportunity is now
        index = bisect_left(self.times_ms, within - 1e-6)
        return int(lap) * len(self.times_ms) + index


@dataclass(frozen=True, slots=True)
class RttSeries:
    """Round-trip times `rtts_s` recorded at `times_s`, interpolated linearly, then repeated."""

    times_s: tuple[float, ...]
    rtts_s: tuple[float, ...]

    def __post_init__(self) -> None:
        times = self.times_s
        rising = all(a < b for a, b in pairwise(times))
        if not times or len(times) != len(self.rtts_s) or times[0] < 0 or not rising:
            raise LinkError("an RTT series must be rising times, each with its round-trip time")
        if min(self.rtts_s) < 0:
            raise LinkError("an RTT series must not hold negative round-trip times")

    def one_way_s(self, time_s: float) -> float:
        """Return the one-way latency at `time_s` in seconds: half of the round-trip time then."""
        period = self.times_s[-1]
        within = time_s % period if period > 0 else 0.0
        return float(np.interp(within, self.times_s, self.rtts_s)) / 2


@dataclass(frozen=True, slots=True)
class Jitter:
    """The random or periodic deviation of a latency from its mean.

    `amplitude_s` is the largest deviation (`uniform`), the standard deviation, cut off at three
    times that (`normal`), or the amplitude of a sine with a period of `period_s` (`sinusoidal`).
    """

    kind: JitterKind = "uniform"
    amplitude_s: float = 0.0
    period_s: float = 10.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(JitterKind):
            kinds = ", ".join(get_args(JitterKind))
            raise LinkError(f"unknown kind of jitter {self.kind!r}: choose one of {kinds}")
        if not 0 <= self.amplitude_s < float("inf"):
            raise LinkError("jitter must not be negative")
        if not 0 < self.period_s < float("inf"):
            raise LinkError("the period of a sinusoidal jitter must be above 0")

    def draw_s(self, time_s: float, generator: np.random.Generator) -> float:
        """Return the signed seconds to add to the mean latency of a message sent at `time_s`."""
        if self.amplitude_s == 0:
            return 0.0
        match self.kind:
            case "uniform":
                deviation = generator.uniform(-1.0, 1.0)
            case "normal":
                deviation = min(max(generator.standard_normal(), -NORMAL_CUT), NORMAL_CUT)
            case "sinusoidal":
                deviation = float(np.sin(2 * np.pi * time_s / self.period_s))
        return self.amplitude_s * deviation


class LinkModel:
    """One direction of a link: computes when bytes arrive. Times are seconds since its start.

    `bandwidth` in bit/s (None: unlimited) is ignored with Markov `rates` or a delivery trace.
    """

    def __init__(
        self,
        *,
        latency_s: float = 0.0,
        jitter: Jitter | None = None,
        bandwidth: float | None = None,
        rates: MarkovRates | None = None,
        deliveries: DeliveryTrace | None = None,
        rtts: RttSeries | None = None,
        seed: int = 0,
        direction: Direction = "up",
    ) -> None:
        if not 0 <= latency_s < float("inf"):
            raise LinkError("the latency of a link must not be negative")
        if bandwidth is not None and not bandwidth > 0:
            raise LinkError("the bandwidth of a link must be above 0")
        self._latency_s = latency_s
        self._jitter = jitter or Jitter()
        self._bandwidth = bandwidth
        self._channel = MarkovChannel(rates, seed, direction) if rates is not None else None
        self._deliveries = deliveries
        self._rtts = rtts
        key = [seed % 2**64, 0 if direction == "up" else 1]
        self._generator = np.random.Generator(np.random.Philox(key=key))
        self._free_s = 0.0  # when the last byte sent so far has left
        self._last_arrival_s = 0.0
        self._opportunity = 0
        self._left_in_opportunity = PACKET_BYTES

    def rate_at(self, time_s: float) -> float | None:
        """Return the rate at `time_s` in bit/s, None if it is unlimited or a trace replaces it."""
        if self._channel is not None:
            return self._channel.rate_at(time_s)
        return self._bandwidth if self._deliveries is None else None

    def arrivals(self, now_s: float, size: int) -> list[tuple[float, int]]:
        """Simulate sending `size` more bytes at `now_s`; return (arrival in s, bytes) by packet."""
        latency = self._latency_s if self._rtts is None else self._rtts.one_way_s(now_s)
        delay = max(0.0, latency + self._jitter.draw_s(now_s, self._generator))
        packets = []
        for start in range(0, max(size, 1), PACKET_BYTES):
            packet = min(PACKET_BYTES, size - start)
            self._free_s = self._departure_s(max(now_s, self._free_s), packet)
            self._last_arrival_s = max(self._last_arrival_s, self._free_s + delay)
            packets.append((self._last_arrival_s, packet))
        return packets

    def _departure_s(self, ready_s: float, size: int) -> float:
        """Return when the last byte of a packet has left that could start at `ready_s`."""
        if size == 0:
            return ready_s
        if self._channel is not None:
            return self._channel.departure_s(ready_s, 8 * size)
        if self._deliveries is not None:
            return self._delivered_s(self._deliveries, ready_s, size)
        return ready_s if self._bandwidth is None else ready_s + 8 * size / self._bandwidth

    def _delivered_s(self, trace: DeliveryTrace, ready_s: float, size: int) -> float:
        """Consume opportunities byte by byte, as Mahimahi does: two packets may share one."""
        first = trace.first_from(ready_s)
        if first > self._opportunity:
            self._opportunity, self._left_in_opportunity = first, PACKET_BYTES
        while size > self._left_in_opportunity:
            size -= self._left_in_opportunity
            self._opportunity += 1
            self._left_in_opportunity = PACKET_BYTES
        self._left_in_opportunity -= size
        return trace.time_s(self._opportunity)
