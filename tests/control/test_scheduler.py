"""The scheduler against DRAGON Eq. 7 and 8, and the estimators that feed it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.control.scheduler import (
    SMOOTHING,
    WEIGHT,
    Aggregator,
    BandwidthEstimator,
    DecodeProfile,
    Estimate,
    Estimates,
    RoundTrip,
    RttEstimator,
    expected_latency,
    latency_difference,
    next_aggregator,
)
from dragonrt.sampling.noise import Noise
from dragonrt.side import Side

seconds = st.floats(0.0, 2.0)
rates = st.floats(0.0, 1.0)


def estimate(c_l: float, c_r: float, a_l: float, a_r: float, rtt: float) -> Estimate:
    """l is the device, r the cloud."""
    return Estimate({"device": c_l, "cloud": c_r}, {"device": a_l, "cloud": a_r}, rtt)


@given(seconds, seconds, rates, rates, seconds)
def test_the_difference_has_the_closed_form_of_eq_8(
    c_l: float, c_r: float, a_l: float, a_r: float, rtt: float
) -> None:
    j = c_r - c_l
    if c_l <= c_r - rtt:
        closed = (1 - a_r) * rtt
    elif c_l <= c_r:
        closed = (1 - a_l) * j + (a_l - a_r) * rtt
    elif c_l <= c_r + rtt:
        closed = (1 - a_r) * j + (a_l - a_r) * rtt
    else:
        closed = (a_l - 1) * rtt
    found = latency_difference("device", estimate(c_l, c_r, a_l, a_r, rtt))
    assert found == pytest.approx(closed, abs=1e-9)


@pytest.mark.parametrize(("accepted", "latency_s"), [(1.0, 0.08), (0.0, 0.38)])
def test_a_rejected_remote_draft_costs_a_round_trip(accepted: float, latency_s: float) -> None:
    found = expected_latency("device", estimate(0.05, 0.08, 0.5, accepted, 0.3))
    assert found == pytest.approx(latency_s)


def test_greedy_aggregates_at_the_side_whose_drafts_fail() -> None:
    noise = Noise(0)
    failing_cloud = estimate(0.05, 0.05, 0.9, 0.3, 0.3)
    for current in ("device", "cloud"):
        chosen = next_aggregator(Aggregator.GREEDY, 1, current, failing_cloud, noise)
        assert chosen == "cloud"
    level = estimate(0.05, 0.05, 0.5, 0.5, 0.3)
    assert next_aggregator(Aggregator.GREEDY, 1, "cloud", level, noise) == "cloud"


def test_random_is_keyed_by_the_step_and_fixed_aggregators_stay() -> None:
    anything = estimate(0.1, 0.2, 0.3, 0.4, 0.5)
    at_random = Aggregator.RANDOM
    drawn = [next_aggregator(at_random, s, "device", anything, Noise(3)) for s in range(400)]
    again = [next_aggregator(at_random, s, "cloud", anything, Noise(3)) for s in range(400)]
    assert drawn == again
    assert 150 < drawn.count("cloud") < 250
    for fixed in (Aggregator.DEVICE, Aggregator.CLOUD, Aggregator.SYNC):
        first = fixed.first()
        assert next_aggregator(fixed, 5, first, anything, Noise(0)) == first


def test_the_online_update_is_the_one_of_the_paper_and_keeps_k_c() -> None:
    profile = DecodeProfile(k_a=1.0, k_b=2.0, k_c=0.01)
    profile.update(10, 0.05)
    assert profile.k_a == pytest.approx((1 - SMOOTHING) * 1.0 + SMOOTHING * (0.05 - 0.01) * 10)
    assert profile.k_b == pytest.approx((1 - SMOOTHING) * 2.0 + SMOOTHING * 100)
    assert profile.k_c == 0.01


def test_an_offline_profile_is_moved_to_the_end_of_what_was_read() -> None:
    lengths = list(range(100, 900, 7))
    offline = DecodeProfile.fit(lengths, [0.002 + 3e-6 * t for t in lengths])
    assert (offline.predict(100), offline.k_c) == pytest.approx((0.0023, 0.002))
    in_an_answer = offline.after_context(250)
    assert in_an_answer.predict(0) == pytest.approx(offline.predict(250))
    assert in_an_answer.predict(40) == pytest.approx(offline.predict(290))


def test_the_first_forwards_set_the_intercept_for_good() -> None:
    slope = DecodeProfile(k_a=0.0, k_b=1.0, k_c=0.01).after_context(0)
    estimates = Estimates()
    estimates.set_profile("device", slope)  # nothing is known of the cloud
    sides: tuple[Side, ...] = ("device", "cloud")
    for side in sides:
        for step, seconds in enumerate((0.03, 0.02, 0.04), start=1):
            estimates.add_sample(side, step, seconds)
        profile = estimates.profile(side)
        assert profile is not None
        assert profile.predict(4) == pytest.approx(0.03)
        estimates.add_sample(side, 4, 0.05)
        assert profile.k_c == pytest.approx(0.03)
        assert 0.03 < profile.predict(5) < 0.05


def test_estimates_follow_what_is_decoded() -> None:
    known, rates = Estimates(), {"device": 0.5, "cloud": 0.4}

    def estimated(step: int, rtt_s: float = 0.3) -> Estimate:
        return known.for_scheduling(step, rtt_s, rates)  # type: ignore[arg-type]

    assert estimated(5).decode_s == {"device": 0.0, "cloud": 0.0}
    known.set_profile("device", DecodeProfile(k_a=0.0, k_b=1.0, k_c=0.02))
    assert estimated(5).decode_s == {"device": 0.02, "cloud": 0.02}
    known.add_sample("cloud", 0, 0.0)  # it needed no forward
    assert known.profile("cloud") is None
    known.add_sample("cloud", 1, 0.05)  # the first measurement stands for a missing profile
    assert estimated(5) == Estimate({"device": 0.02, "cloud": 0.05}, rates, 0.3)  # type: ignore[arg-type]
    known.add_sample("device", 99, 0.03)
    assert estimated(99).decode_s["device"] == pytest.approx(0.03)


def test_the_measured_way_excludes_the_time_of_a_held_stamp() -> None:
    device, cloud = RoundTrip(), RoundTrip()
    device.begin(100.0)
    cloud.begin(7.0)  # the clocks have nothing in common
    time_us, echo_us = device.stamp(100.5)
    assert (echo_us, cloud.seconds) == (0, None)
    cloud.received(time_us, echo_us, 8.0)
    reply = cloud.stamp(8.3)  # held for 0.3 s; both ways took 0.25 s together
    device.received(*reply, 101.05)
    assert device.seconds == pytest.approx(0.25)
    again = cloud.stamp(9.3)  # the same stamp, held longer, on a slower way
    device.received(*again, 102.15)
    assert device.seconds == pytest.approx(0.35)
    cloud.received(*device.stamp(103.15), 10.65)
    assert cloud.seconds == pytest.approx(0.35)


def test_what_cannot_be_true_is_no_sample() -> None:
    mine = RoundTrip()
    mine.begin(5.0)
    mine.received(0, 0, 6.0)
    assert (mine.seconds, mine.stamp(6.0)[1]) == (None, 0)
    mine.received(2**62, 2_000_000, 6.0)  # an echo of what was never sent
    assert mine.seconds is None
    mine.received(2**62, 1, 6.0)
    assert mine.seconds == pytest.approx(1.0)
    mine.begin(9.0)
    assert (mine.seconds, mine.stamp(9.0)) == (None, (1, 0))


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
