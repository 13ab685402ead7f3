"""Time, states and rewards of an iteration."""

import math

import numpy as np
import pytest

from dragonrt.link.models import MarkovChannel, MarkovRates
from dragonrt.modes.blocks.messages import Block
from dragonrt.wire.encoding import encode
from dragonrt.wire.frames import encode_frame
from scripts.lab.course import (
    Course,
    IterationCosts,
    estimated_accepted,
    iteration_latency,
)

RATES = MarkovRates(20e3, 150e3, to_low=0.2, to_high=0.3, slot_s=0.05)


def test_the_terms_of_an_iteration_by_hand() -> None:
    costs = IterationCosts(RATES, 1024, down_rate=1e4)
    # 3 · 10 ms + 3 · (10 + 22) bits / 1 kbit/s + 50 ms + (10 + 2) bits / 10 kbit/s
    assert iteration_latency(costs, 3, 22, 1e3) == pytest.approx(0.03 + 0.096 + 0.05 + 0.0012)


def test_an_iteration_takes_the_papers_time_at_a_rate_that_stays() -> None:
    rates = MarkovRates(50e3, 50e3, 0.5, 0.5)
    costs = IterationCosts(rates, 8192, down_rate=1e6, round_trip_s=0.2, frame_bits=200)
    # the papers count the token's 13 bits apart
    wanted = 0.2 + iteration_latency(costs, 4, 500 + 200 / 4 - 13, 50e3)
    assert Course(costs, seed=1).iteration(4, 4 * 500, 2, []) == pytest.approx(wanted)


def test_bits_leave_at_the_rates_of_their_time() -> None:
    course = Course(IterationCosts(RATES, 8192, frame_bits=100), seed=3)
    channel = MarkovChannel(RATES, 3)
    now = 0.0
    for drafted in (1, 5, 3, 8) * 10:
        assert course.state(1.0).rate == channel.rate_at(now)
        seconds = course.iteration(drafted, 900 * drafted, 1, [])
        ready = now + drafted * 0.010
        departure = channel.departure_s(ready, 900 * drafted + 100)
        assert now + seconds == pytest.approx(departure + 0.050)
        now += seconds


@pytest.mark.parametrize("place", [(1, 0), (40, 64), (300, 512)])
def test_a_frame_takes_the_bits_that_the_wire_adds_to_a_block(place: tuple[int, int]) -> None:
    turn, step = place
    block = Block(1, turn, step, 0xDEADBEEF, 4, (3,), (), bytes(20))
    added = len(encode_frame(encode(block))) - len(block.payload)
    assert IterationCosts(RATES, 8192).frame_bits == pytest.approx(8 * added, abs=8 * 4)


def test_the_estimate_of_accepted_tokens_has_the_right_mean() -> None:
    """By enumeration of all blocks of two tokens, over three that depend on the one before."""
    generator = np.random.default_rng(2)
    q, p = (generator.dirichlet(np.ones(3), size=4) for _ in range(2))  # a row per prefix: none, x
    exact = estimate = 0.0
    for x in range(3):
        for y in range(3):
            chance = q[0, x] * q[1 + x, y]
            accepted = [min(1.0, p[0, x] / q[0, x]), min(1.0, p[1 + x, y] / q[1 + x, y])]
            overlap = [np.minimum(p[row], q[row]).sum() for row in (0, 1 + x)]
            exact += chance * (accepted[0] + math.prod(accepted))
            estimate += chance * estimated_accepted(accepted, overlap)
    assert estimate == pytest.approx(exact, abs=1e-12)
