"""Estimates of the link from what is measured in band: samples and a time in, values out.

SPEC 1.4: each estimate is kept as the latest sample and as a moving average. The average weighs a
sample by exp(-age / MEMORY_S), so it is right for samples that come at any distance. Samples that
cannot be true are ignored: the other side echoes the times, and may lie.
"""

from math import exp, isfinite

MEMORY_S = 10.0


class _MovingAverage:
    """The latest sample and the mean of all samples, old ones weighing ever less."""

    def __init__(self) -> None:
        self.latest: float | None = None
        self.average: float | None = None
        self._weight = 0.0
        self._time_s = 0.0

    def update(self, sample: float, now_s: float) -> None:
        age_s = max(0.0, now_s - self._time_s)
        self._weight = self._weight * exp(-age_s / MEMORY_S) + 1.0
        self._time_s = now_s
        self.latest = sample
        previous = sample if self.average is None else self.average
        self.average = previous + (sample - previous) / self._weight


class RttEstimator:
    """Round-trip time in seconds, sampled by Ping and Pong; None before the first sample."""

    def __init__(self) -> None:
        self._samples = _MovingAverage()

    def update(self, rtt_s: float, now_s: float) -> None:
        """Take a sample that was completed at `now_s`."""
        if isfinite(rtt_s) and rtt_s >= 0:
            self._samples.update(rtt_s, now_s)

    @property
    def latest_s(self) -> float | None:
        """The last sample."""
        return self._samples.latest

    @property
    def average_s(self) -> float | None:
        """The moving average."""
        return self._samples.average


class BandwidthEstimator:
    """Bandwidth in bit/s, sampled by timed bursts; None before the first sample.

    The interval is that by which the burst's bytes alone delayed its end: the time between the
    arrivals of its first and last part (then the first part's bytes do not count), or what its
    echo took longer than an empty one.
    """

    def __init__(self) -> None:
        self._samples = _MovingAverage()

    def update(self, size: int, interval_s: float, now_s: float) -> None:
        """Take a sample of `size` bytes that took `interval_s` seconds, completed at `now_s`."""
        if size > 0 and isfinite(interval_s) and interval_s > 0:
            self._samples.update(8 * size / interval_s, now_s)

    @property
    def latest_bps(self) -> float | None:
        """The last sample."""
        return self._samples.latest

    @property
    def average_bps(self) -> float | None:
        """The moving average."""
        return self._samples.average
