"""Estimates of the link from in-band measurements: samples in, values out (SPEC 1.4).

Impossible samples are ignored, because the other side echoes the times and may lie.
"""

from math import isfinite

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
    """Round-trip time in seconds."""

    def add(self, sent_s: float, received_s: float) -> None:
        """Add a sample: the times of a Ping and its Pong, of the same clock."""
        rtt = received_s - sent_s
        if isfinite(rtt) and rtt >= 0:
            self._take(rtt)


class BandwidthEstimator(_Estimator):
    """Bandwidth in bit/s, from bursts."""

    def add(self, size: int, interval_s: float) -> None:
        """Add a sample: a burst's bytes, and the seconds by which they alone delayed its end."""
        if size > 0 and isfinite(interval_s) and interval_s > 0:
            self._take(8 * size / interval_s)
