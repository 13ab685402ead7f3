"""The estimators: each value from its own samples, and no sample that cannot be true."""

import math

import pytest

from dragonrt.control.scheduler import WEIGHT, BandwidthEstimator, RttEstimator


def test_rtt_latest_and_average() -> None:
    rtt = RttEstimator()
    rtt.add(10.0, 10.1)
    assert rtt.latest == rtt.average == pytest.approx(0.1)
    rtt.add(20.0, 20.5)
    assert rtt.latest == pytest.approx(0.5)
    assert rtt.average == pytest.approx(0.1 + WEIGHT * 0.4)


def test_bandwidth_is_bits_over_the_interval() -> None:
    bandwidth = BandwidthEstimator()
    bandwidth.add(1000, 0.008)
    bandwidth.add(1000, 0.004)
    assert bandwidth.latest == pytest.approx(2e6)
    assert bandwidth.average == pytest.approx(1e6 + WEIGHT * 1e6)


def test_impossible_samples_are_ignored() -> None:
    rtt, bandwidth = RttEstimator(), BandwidthEstimator()
    for sent, received in ((2.0, 1.0), (math.nan, 1.0), (-math.inf, 1.0)):
        rtt.add(sent, received)
    for size, interval in ((0, 1.0), (-5, 1.0), (10, 0.0), (10, -1.0), (10, math.nan)):
        bandwidth.add(size, interval)
    assert rtt.latest is bandwidth.latest is rtt.average is None
