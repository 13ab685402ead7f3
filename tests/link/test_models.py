"""Arrival times are what the model of the link says, also at the integral of a Markov rate."""

import math
import statistics
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.errors import LinkError
from dragonrt.link.models import (
    DeliveryTrace,
    Direction,
    Jitter,
    JitterKind,
    LinkModel,
    MarkovChannel,
    MarkovRates,
    RttSeries,
)

RATES = MarkovRates(10e3, 100e3, to_low=0.05, to_high=0.1, slot_s=0.5)


def arrival(model: LinkModel, now_s: float, size: int = 1) -> float:
    """When the last byte of a message arrives."""
    return model.arrivals(now_s, size)[-1][0]


def test_bandwidth_makes_messages_wait_for_each_other() -> None:
    model = LinkModel(latency_s=0.1, bandwidth=8000)  # a byte per millisecond
    assert arrival(model, 0.0, 100) == pytest.approx(0.2)
    assert arrival(model, 0.0, 100) == pytest.approx(0.3), "leaves when the first has left"
    assert arrival(model, 1.0, 100) == pytest.approx(1.2), "the line was idle"


def test_packets_of_a_long_message_arrive_at_the_bandwidth() -> None:
    times = [time for time, _ in LinkModel(bandwidth=12_000).arrivals(0.0, 4500)]
    assert times == pytest.approx([1.0, 2.0, 3.0])


def test_the_end_follows_everything() -> None:
    model = LinkModel(latency_s=0.1, bandwidth=8000)
    model.arrivals(0.0, 1000)
    ((time, size),) = model.arrivals(0.0, 0)
    assert time == pytest.approx(1.1)
    assert size == 0


def delays(kind: JitterKind, latency_s: float = 1.0) -> list[float]:
    jitter = Jitter(kind, 0.1, period_s=8.0)
    # Far enough apart that nothing is held back to keep the order.
    model = LinkModel(latency_s=latency_s, jitter=jitter, seed=3)
    return [arrival(model, 10.0 * n) - 10.0 * n for n in range(4000)]


def test_uniform_jitter() -> None:
    sample = delays("uniform")
    assert 0.9 <= min(sample) < 0.901
    assert 1.099 < max(sample) <= 1.1
    assert statistics.fmean(sample) == pytest.approx(1.0, abs=0.004)
    assert statistics.pstdev(sample) == pytest.approx(0.1 / math.sqrt(3), rel=0.03)


def test_normal_jitter_is_cut_off() -> None:
    sample = delays("normal")
    assert statistics.fmean(sample) == pytest.approx(1.0, abs=0.006)
    assert statistics.pstdev(sample) == pytest.approx(0.1, rel=0.03)
    assert 0.7 - 1e-9 <= min(sample) < 0.75
    assert 1.25 < max(sample) <= 1.3 + 1e-9


def test_sinusoidal_jitter_follows_its_period() -> None:
    model = LinkModel(latency_s=1.0, jitter=Jitter("sinusoidal", 0.1, period_s=8.0))
    sample = [arrival(model, now) - now for now in (0.0, 2.0, 4.0, 6.0, 10.0)]
    assert sample == pytest.approx([1.0, 1.1, 1.0, 0.9, 1.1])


def test_the_seed_and_the_direction_decide() -> None:
    def jitter(seed: int, direction: Direction) -> list[float]:
        how = {"latency_s": 1.0, "jitter": Jitter("uniform", 0.5)}
        model = LinkModel(**how, seed=seed, direction=direction)  # type: ignore[arg-type]
        return [arrival(model, 5.0 * n) for n in range(20)]

    def rates(seed: int, direction: Direction) -> list[float]:
        channel = MarkovChannel(RATES, seed, direction)
        return [channel.rate_at(0.5 * n) for n in range(200)]

    for course in (jitter, rates):
        assert course(1, "up") == course(1, "up")
        assert course(1, "up") != course(2, "up")
        assert course(1, "up") != course(1, "down")


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(0, 5000)), min_size=1, max_size=30),
    st.sampled_from(["uniform", "normal", "sinusoidal"]),
    st.sampled_from([None, 1e4, 1e9]),
    st.sampled_from([None, DeliveryTrace((1, 1, 5, 9))]),
)
def test_nothing_overtakes_and_nothing_is_early(
    sends: list[tuple[float, int]],
    kind: JitterKind,
    bandwidth: float | None,
    deliveries: DeliveryTrace | None,
) -> None:
    model = LinkModel(
        latency_s=0.2, jitter=Jitter(kind, 0.3), bandwidth=bandwidth, deliveries=deliveries
    )
    now = last = 0.0
    for gap, size in sends:
        now += gap
        packets = model.arrivals(now, size)
        assert sum(bytes_ for _, bytes_ in packets) == size
        for time, _ in packets:
            assert time >= max(now, last)
            last = time


def test_mahimahi_opportunities() -> None:
    model = LinkModel(deliveries=DeliveryTrace((2, 4, 10)))
    assert arrival(model, 0.0, 1500) == pytest.approx(0.002)
    assert arrival(model, 0.0, 1500) == pytest.approx(0.004)
    assert arrival(model, 0.005, 1500) == pytest.approx(0.010)
    assert arrival(model, 0.005, 1500) == pytest.approx(0.012), "the trace repeats"
    assert arrival(model, 1.0, 1500) == pytest.approx(1.0), "a hundred laps later, at its end"


def test_small_messages_share_an_opportunity() -> None:
    model = LinkModel(deliveries=DeliveryTrace((10, 20)))
    assert arrival(model, 0.0, 1000) == pytest.approx(0.010)
    assert arrival(model, 0.0, 500) == pytest.approx(0.010)
    assert arrival(model, 0.0, 1) == pytest.approx(0.020)
    assert arrival(model, 0.021, 1) == pytest.approx(0.030), "what is not used is lost"


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.floats(0, 10))
def test_first_opportunity_is_the_first_one(times: list[int], now_s: float) -> None:
    trace = DeliveryTrace((*sorted(times), 51))
    first = trace.first_from(now_s)
    assert trace.time_s(first) >= now_s - 1e-8
    assert first == 0 or trace.time_s(first - 1) < now_s


def test_an_opportunity_is_not_missed_by_a_rounded_time() -> None:
    trace = DeliveryTrace((3, 7, 10))
    assert all(trace.first_from(trace.time_s(number)) == number for number in range(2000))


def test_rtt_series_is_halved_interpolated_and_repeated() -> None:
    series = RttSeries((0.0, 10.0), (0.1, 0.3))
    model = LinkModel(rtts=series, latency_s=99.0)
    assert arrival(model, 0.0) == pytest.approx(0.05)
    assert arrival(model, 5.0) - 5.0 == pytest.approx(0.1)
    assert arrival(model, 15.0) - 15.0 == pytest.approx(0.1)
    assert RttSeries((0.0,), (0.2,)).one_way_s(7.0) == 0.1


def test_wrong_models_are_refused() -> None:
    for attempt in (
        lambda: DeliveryTrace(()),
        lambda: DeliveryTrace((0,)),
        lambda: DeliveryTrace((3, 2)),
        lambda: DeliveryTrace((-1, 2)),
        lambda: RttSeries((), ()),
        lambda: RttSeries((1.0, 1.0), (0.1, 0.1)),
        lambda: RttSeries((1.0,), ()),
        lambda: RttSeries((1.0,), (-0.1,)),
        lambda: Jitter("gamma", 0.1),  # type: ignore[arg-type]
        lambda: Jitter("uniform", -0.1),
        lambda: Jitter("sinusoidal", 0.1, 0.0),
        lambda: LinkModel(latency_s=-0.1),
        lambda: LinkModel(latency_s=math.nan),
        lambda: LinkModel(bandwidth=0.0),
        lambda: MarkovRates(0, 1, 0.1, 0.1, 1),
        lambda: MarkovRates(2, 1, 0.1, 0.1, 1),
        lambda: MarkovRates(1, math.inf, 0.1, 0.1, 1),
        lambda: MarkovRates(1, 2, 0, 0.1, 1),
        lambda: MarkovRates(1, 2, 0.1, 1, 1),
        lambda: MarkovRates(1, 2, math.nan, 0.1, 1),
        lambda: MarkovRates(1, 2, 0.1, 0.1, 0),
    ):
        with pytest.raises(LinkError):
            attempt()


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
    state = numbers[0][0] < to_low / (to_low + to_high)
    expected = [state]
    for u in np.concatenate(numbers)[1:]:
        state = bool(u < (1 - to_high if state else to_low))
        expected.append(state)
    assert low.tolist() == expected


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
def test_a_markov_link_delivers_in_order_within_its_rates(sends: list[tuple[float, int]]) -> None:
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
