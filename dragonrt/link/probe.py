"""Estimates of the link from what is measured in band: samples in, values out (SPEC 1.4).

Each keeps the latest value and an exponentially weighted moving average. Samples that cannot be
true (the other side echoes the times and may lie) are ignored.
"""

from math import isfinite

DEFAULT_WEIGHT = 1 / 8  # of a new sample in the average


class _Estimator:
    """The latest sample and the moving average; None before the first sample."""

    def __init__(self, weight: float = DEFAULT_WEIGHT) -> None:
        self._weight = weight
        self.latest: float | None = None
        self.average: float | None = None

    def _take(self, sample: float) -> None:
        """The first sample is the average; later ones move it by `weight` of the difference."""
        self.latest = sample
        if self.average is None:
            self.average = sample
        else:
            self.average += self._weight * (sample - self.average)


class RttEstimator(_Estimator):
    """Round-trip time in seconds, from the times a Ping was sent and its Pong received."""

    def add(self, sent_s: float, received_s: float) -> None:
        """Take a sample; both times are of the same clock."""
        rtt = received_s - sent_s
        if isfinite(rtt) and rtt >= 0:
            self._take(rtt)


class BandwidthEstimator(_Estimator):
    """Bandwidth in bit/s, from bursts: bytes, and the time between their arrivals.

    The interval is that by which the burst's bytes alone delayed its end: the time between the
    arrivals of its first and last part (then the first part's bytes do not count), or what its
    echo took longer than an empty one.
    """

    def add(self, size: int, interval_s: float) -> None:
        """Take a sample of `size` bytes that arrived in `interval_s` seconds."""
        if size > 0 and isfinite(interval_s) and interval_s > 0:
            self._take(8 * size / interval_s)
