"""The Markov channel: its states are the chain's, and bits leave at the integral of the rate."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.errors import LinkError
from dragonrt.link.markov import MarkovChannel, MarkovRates
from dragonrt.link.models import LinkModel

RATES = MarkovRates(10e3, 100e3, to_low=0.05, to_high=0.1, slot_s=0.5)


def states(rates: MarkovRates, slots: int, seed: int = 1) -> np.ndarray:
    """1 where the rate is the low one."""
    channel = MarkovChannel(rates, seed)
    middle = rates.slot_s / 2
    return np.array([channel.rate_at(n * rates.slot_s + middle) == rates.low for n in range(slots)])


@pytest.mark.parametrize(("to_low", "to_high"), [(0.05, 0.1), (0.9, 0.8), (1e-4, 1e-4)])
def test_every_slot_follows_from_the_one_before_across_blocks(
    to_low: float, to_high: float
) -> None:
    """Against the chain run forward, with the same numbers."""
    channel = MarkovChannel(MarkovRates(1.0, 2.0, to_low, to_high, slot_s=1.0), seed=3)
    low = states(channel.rates, 3 * 4096, seed=3)
    numbers = [
        np.random.Generator(
            np.random.Philox(key=np.array((3, 2), np.uint64), counter=np.array((0, n, 0, 0)))
        ).random(4096)
        for n in range(3)
    ]
    state = numbers[0][0] < channel.rates.low_share
    expected = [state]
    for u in np.concatenate(numbers)[1:]:
        state = bool(u < (1 - to_high if state else to_low))
        expected.append(state)
    assert low.tolist() == expected


def test_the_seed_and_the_direction_decide() -> None:
    def course(seed: int, direction: str) -> list[float]:
        channel = MarkovChannel(RATES, seed, "up" if direction == "up" else "down")
        return [channel.rate_at(0.5 * n) for n in range(200)]

    assert course(1, "up") == course(1, "up")
    assert course(1, "up") != course(2, "up")
    assert course(1, "up") != course(1, "down")


@given(st.floats(0, 1000), st.floats(1, 1e6))
def test_bits_are_the_integral_of_the_rate(ready_s: float, bits: float) -> None:
    channel = MarkovChannel(RATES, 5)
    end_s = channel.departure_s(ready_s, bits)
    edges = [ready_s]
    slot = int(ready_s / RATES.slot_s) + 1
    while slot * RATES.slot_s < end_s:
        edges.append(slot * RATES.slot_s)
        slot += 1
    edges.append(end_s)
    sent = sum(channel.rate_at((a + b) / 2) * (b - a) for a, b in pairwise(edges))
    assert sent == pytest.approx(bits, rel=1e-6, abs=1e-3)


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 5000)), min_size=1, max_size=30))
def test_a_link_with_markov_rates_delivers_in_order_and_no_faster_than_they_allow(
    sends: list[tuple[float, int]],
) -> None:
    model = LinkModel(latency_s=0.2, rates=RATES, seed=9)
    channel = MarkovChannel(RATES, 9)
    now = last = free = 0.0
    for gap, size in sends:
        now += gap
        packets = model.arrivals(now, size)
        assert sum(packet for _, packet in packets) == size
        for time, _ in packets:
            assert time >= max(now + 0.2, last)
            last = time
        if size:
            free = channel.departure_s(max(now, free), 8 * size)
            assert last == pytest.approx(free + 0.2)


@pytest.mark.parametrize(
    "wrong",
    [
        (0, 1, 0.1, 0.1, 1),
        (2, 1, 0.1, 0.1, 1),
        (1, float("inf"), 0.1, 0.1, 1),
        (1, 2, 0, 0.1, 1),
        (1, 2, 0.1, 1, 1),
        (1, 2, float("nan"), 0.1, 1),
        (1, 2, 0.1, 0.1, 0),
    ],
)
def test_wrong_rates_are_refused(wrong: tuple[float, float, float, float, float]) -> None:
    with pytest.raises(LinkError):
        MarkovRates(*wrong)
