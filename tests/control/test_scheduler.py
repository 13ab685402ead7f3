"""The scheduler against DRAGON Eq. 7 and 8, and the estimators that feed it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.control.profiler import SMOOTHING, DecodeDelay, DecodeProfile, Estimates
from dragonrt.control.scheduler import (
    Aggregator,
    Estimate,
    expected_latency,
    latency_difference,
    next_aggregator,
)
from dragonrt.sampling.noise import Noise

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


def test_a_perfect_remote_costs_the_slower_decoder() -> None:
    assert expected_latency("device", estimate(0.05, 0.08, 0.5, 1.0, 0.3)) == pytest.approx(0.08)


def test_a_remote_that_is_never_accepted_costs_its_decoding_and_a_round_trip() -> None:
    assert expected_latency("device", estimate(0.05, 0.08, 0.5, 0.0, 0.3)) == pytest.approx(0.38)


def test_greedy_gives_the_aggregation_to_the_side_whose_drafts_fail() -> None:
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
    in_an_answer = offline.behind(250)
    assert in_an_answer.predict(0) == pytest.approx(offline.predict(250))
    assert in_an_answer.predict(40) == pytest.approx(offline.predict(290))


def test_the_first_forwards_set_the_intercept_and_it_is_frozen_then() -> None:
    slope = DecodeProfile(k_a=0.0, k_b=1.0, k_c=0.01).behind(0)
    profiled, unknown = DecodeDelay(slope), DecodeDelay()
    for step, seconds in enumerate((0.03, 0.02, 0.04), start=1):
        profiled.took(step, seconds)
        unknown.took(step, seconds)
    for delay in (profiled, unknown):
        assert delay.profile is not None
        assert delay.profile.predict(4) == pytest.approx(0.03)
        delay.took(4, 0.05)
        assert delay.profile.k_c == pytest.approx(0.03)
        assert 0.03 < delay.profile.predict(5) < 0.05


def test_estimates_follow_what_is_decoded() -> None:
    known, rates = Estimates(), {"device": 0.5, "cloud": 0.4}

    def estimated(step: int, rtt_s: float = 0.3) -> Estimate:
        return known.for_scheduling(step, rtt_s, rates)  # type: ignore[arg-type]

    assert estimated(5).decode_s == {"device": 0.0, "cloud": 0.0}
    known.profiled("device", DecodeProfile(k_a=0.0, k_b=1.0, k_c=0.02))
    assert estimated(5).decode_s == {"device": 0.02, "cloud": 0.02}
    known.decoded("cloud", 0, 0.0)  # it needed no forward
    assert known.profile("cloud") is None
    known.decoded("cloud", 1, 0.05)  # the first measurement stands for a missing profile
    assert estimated(5) == Estimate({"device": 0.02, "cloud": 0.05}, rates, 0.3)  # type: ignore[arg-type]
    known.decoded("device", 99, 0.03)
    assert estimated(99).decode_s["device"] == pytest.approx(0.03)
