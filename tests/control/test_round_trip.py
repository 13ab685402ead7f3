"""The round trip from the times that messages carry: two clocks that have nothing in common."""

import pytest

from dragonrt.control.round_trip import RoundTrip


def test_each_side_measures_the_way_without_the_time_that_a_stamp_was_held() -> None:
    device, cloud = RoundTrip(), RoundTrip()
    device.begin(100.0)
    cloud.begin(7.0)
    time_us, echo_us = device.stamp(100.5)
    assert (echo_us, cloud.seconds) == (0, None)
    cloud.heard(time_us, echo_us, 8.0)
    reply = cloud.stamp(8.3)  # held for 0.3 s; both ways took 0.25 s together
    device.heard(*reply, 101.05)
    assert device.seconds == pytest.approx(0.25)
    again = cloud.stamp(9.3)  # the same stamp, held longer, on a slower way
    device.heard(*again, 102.15)
    assert device.seconds == pytest.approx(0.35)
    cloud.heard(*device.stamp(103.15), 10.65)
    assert cloud.seconds == pytest.approx(0.35)


def test_what_cannot_be_true_is_no_sample() -> None:
    mine = RoundTrip()
    mine.begin(5.0)
    mine.heard(0, 0, 6.0)
    assert (mine.seconds, mine.stamp(6.0)[1]) == (None, 0), "nothing was told"
    mine.heard(2**62, 2_000_000, 6.0)  # an echo of what was never sent
    assert mine.seconds is None
    mine.heard(2**62, 1, 6.0)
    assert mine.seconds == pytest.approx(1.0)
    mine.begin(9.0)
    assert (mine.seconds, mine.stamp(9.0)) == (None, (1, 0))
