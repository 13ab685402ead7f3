"""Estimate delays, and choose by them the side that decides the next token (SPEC 1.3, 1.4).

`greedy` is DRAGON's scheduler (DRAGON §5, Eq. 6-8): after every token it hands over to the other
side if the expected seconds per token are lower there. `both` is leaderless: both sides decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from statistics import fmean, linear_regression

from dragonrt.sampling.noise import Noise, Purpose
from dragonrt.side import Side, other


class Aggregator(StrEnum):
    """Which side decides each token of an answer: the values of `--aggregator`.

    BOTH: each side decides, by the same rule, the same token. GREEDY: the side that is faster.
    RANDOM: by coin. DEVICE, CLOUD: always this side. SYNC: the device, without drafts.
    """

    BOTH = "both"
    GREEDY = "greedy"
    DEVICE = "device"
    CLOUD = "cloud"
    RANDOM = "random"
    SYNC = "sync"

    def first(self) -> Side:
        """Return who decides the first token: cloud for CLOUD, else the device. Not for BOTH."""
        return "cloud" if self is Aggregator.CLOUD else "device"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The scheduler's input: each side's seconds per draft, its acceptance rate, and the RTT."""

    decode_s: dict[Side, float]
    acceptance: dict[Side, float]
    rtt_s: float


def expected_latency(aggregator: Side, estimate: Estimate) -> float:
    """Return the expected seconds per token if the side `aggregator` decides: Z in DRAGON Eq. 7."""
    remote = other(aggregator)
    local_s, remote_s = estimate.decode_s[aggregator], estimate.decode_s[remote]
    accepted = estimate.acceptance[remote]
    waits = max(local_s, remote_s + estimate.rtt_s)
    return accepted * max(local_s, remote_s) + (1.0 - accepted) * waits


def latency_difference(aggregator: Side, estimate: Estimate) -> float:
    """Return the seconds per token that a handover by `aggregator` saves: ΔZ in DRAGON Eq. 8."""
    return expected_latency(aggregator, estimate) - expected_latency(other(aggregator), estimate)


def next_aggregator(
    placement: Aggregator, step: int, current: Side, estimate: Estimate, noise: Noise
) -> Side:
    """Return who decides token `step`: GREEDY the faster, RANDOM by `noise`, else `current`."""
    match placement:
        case Aggregator.GREEDY:
            return other(current) if latency_difference(current, estimate) > 0 else current
        case Aggregator.RANDOM:
            coin = noise.uniform(Purpose.AGGREGATOR, None, step)
            return "device" if coin < 0.5 else "cloud"
        case _:
            return current


SMOOTHING = 0.1
"""ζ: the weight of the newest sample in every moving average."""

ANCHORS = 3
"""Forwards of an answer whose mean delay sets the intercept k_c; later ones do not change it."""

PRIOR_STEP = 16
"""The prior of the slope has the weight of a sample at this step of an answer."""


@dataclass(slots=True)
class DecodeProfile:
    """The seconds to draft one token, as a line: (k_a / k_b)·t + k_c, after t tokens of an answer.

    In an offline profile, t also counts document and prompt: convert it with `after_context`. k_a
    and k_b are averages of t·(seconds - k_c) and of t², so k_a / k_b is the least-squares slope.
    """

    k_a: float
    k_b: float
    k_c: float

    @classmethod
    def fit(cls, lengths: Sequence[float], delays_s: Sequence[float]) -> "DecodeProfile":
        """Fit a line to offline samples by least squares: contexts in tokens, delays in seconds."""
        slope, k_c = linear_regression(lengths, delays_s)
        k_b = fmean(t * t for t in lengths)
        return cls(slope * k_b, k_b, k_c)

    @property
    def slope(self) -> float:
        """Return by how many seconds each further token slows a draft."""
        return self.k_a / self.k_b

    def after_context(self, context: int) -> "DecodeProfile":
        """Convert an offline profile to one answer: t counts tokens after its `context` tokens."""
        return DecodeProfile(self.slope * PRIOR_STEP**2, PRIOR_STEP**2, self.predict(context))

    def predict(self, step: float) -> float:
        """Return the expected seconds to draft a token after `step` tokens, at least 0."""
        return max(self.slope * step + self.k_c, 0.0)

    def update(self, step: int, delay_s: float) -> None:
        """Update the slope, not the constant, by a draft of `delay_s` seconds at token `step`."""
        self.k_a = (1 - SMOOTHING) * self.k_a + SMOOTHING * (delay_s - self.k_c) * step
        self.k_b = (1 - SMOOTHING) * self.k_b + SMOOTHING * step * step


class Estimates:
    """Running estimates of each side's seconds per draft; both sides compute the same ones.

    The first 3 (ANCHORS) samples of an answer set the constant k_c of a side's DecodeProfile, and
    later ones its slope. Until a side has samples or a profile, it counts as fast as the other.
    """

    def __init__(self) -> None:
        self._profiles: dict[Side, DecodeProfile] = {}
        self._anchors: dict[Side, list[tuple[int, float]]] = {"device": [], "cloud": []}

    def profile(self, side: Side) -> DecodeProfile | None:
        """Return the newest DecodeProfile of `side`, None before any sample or offline profile."""
        return self._profiles.get(side)

    def set_profile(self, side: Side, profile: DecodeProfile) -> None:
        """Restart the estimate of `side` from a profile, measured offline or sent by the peer."""
        self._profiles[side], self._anchors[side] = profile, []

    def add_sample(self, side: Side, step: int, decode_s: float) -> None:
        """Record that `side` took `decode_s` seconds to draft token `step`; ignore unmeasured 0."""
        if decode_s <= 0:
            return
        profile = self._profiles.setdefault(side, DecodeProfile(0.0, PRIOR_STEP**2, decode_s))
        anchors = self._anchors[side]
        if len(anchors) == ANCHORS:
            profile.update(step, decode_s)
            return
        anchors.append((step, decode_s))
        profile.k_c = sum(seconds - profile.slope * at for at, seconds in anchors) / len(anchors)

    def for_scheduling(self, step: int, rtt_s: float, acceptance: dict[Side, float]) -> Estimate:
        """Return the Estimate of both sides' speed, to choose who decides the token `step` + 1."""
        decode_s: dict[Side, float] = {}
        for side in self._anchors:
            profile = self.profile(side) or self.profile(other(side))
            decode_s[side] = profile.predict(step + 1) if profile is not None else 0.0
        return Estimate(decode_s, acceptance.copy(), rtt_s)


class RoundTrip:
    """Measures the round trip from one side, by the times that messages carry.

    A message has two times in microseconds: when it was sent, since its sender's session began; and
    an echo, the newest time its sender got plus the time since then. So clocks are not compared.
    `seconds` is the newest round trip, None before the first echo.
    """

    def __init__(self) -> None:
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Begin a new session at `now`, in seconds, and forget the times of the last session."""
        self.seconds: float | None = None
        self._began_s = now
        self._theirs: tuple[int, float] | None = None

    def stamp(self, now: float) -> tuple[int, int]:
        """Return (own time, echo of the peer's newest time or 0), in µs, to send at `now` s."""
        echo_us = 0
        if self._theirs is not None:
            stamp_us, arrived_s = self._theirs
            echo_us = stamp_us + round((now - arrived_s) * 1e6)
        return self._elapsed_us(now), echo_us

    def received(self, time_us: int, echo_us: int, now: float) -> None:
        """Measure the round trip by the peer's `stamp`, received at `now` seconds; ignore a 0."""
        if time_us:
            self._theirs = time_us, now
        elapsed_us = self._elapsed_us(now)
        if 0 < echo_us <= elapsed_us:  # ignore impossible samples
            self.seconds = (elapsed_us - echo_us) / 1e6

    def _elapsed_us(self, now: float) -> int:
        return round((now - self._began_s) * 1e6) + 1


WEIGHT = 1 / 8  # of a new sample in the moving average


class _Estimator:
    """The latest sample and the exponentially weighted moving average; None before the first."""

    def __init__(self) -> None:
        self.latest: float | None = None
        self.average: float | None = None

    def _take(self, sample: float) -> None:
        self.latest = sample
        self.average = sample if self.average is None else self.average
        self.average += WEIGHT * (sample - self.average)


class RttEstimator(_Estimator):
    """Measures round trips by Pings, in s: the `latest` and a moving `average`; None at first."""

    def add(self, sent_s: float, received_s: float) -> None:
        """Add a sample: when a Ping was sent and its Pong arrived, in seconds of the same clock."""
        rtt = received_s - sent_s
        if isfinite(rtt) and rtt >= 0:
            self._take(rtt)


class BandwidthEstimator(_Estimator):
    """Measures a link's bit/s by probes: the `latest` and a moving `average`; None at first."""

    def add(self, size: int, interval_s: float) -> None:
        """Add a probe: with `size` more bytes, a round trip took `interval_s` seconds longer."""
        if size > 0 and isfinite(interval_s) and interval_s > 0:
            self._take(8 * size / interval_s)
