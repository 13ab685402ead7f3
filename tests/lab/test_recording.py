"""Time and states of an iteration, and episodes that have the law of speculative decoding."""

import math
from itertools import pairwise, product

import numpy as np
import pytest

from dragonrt.control.trained import Action, Heuristic, Static
from dragonrt.link.models import MarkovChannel, MarkovRates
from dragonrt.modes.messages import Block
from dragonrt.wire.encoding import encode, encode_frame
from scripts.lab.model_pair import ModelPair, Tasks
from scripts.lab.prompt import bundled_prompts
from scripts.lab.recording import (
    Course,
    IterationCosts,
    RecordedEpisodes,
    RecordedText,
    iteration_latency,
)

RATES = MarkovRates(20e3, 150e3, to_low=0.2, to_high=0.3, slot_s=0.05)


def text(length: int, stands: float = 0.5) -> RecordedText:
    """Every token is accepted with probability `stands`, at any resolution."""
    p, q = np.full(length, 0.5), np.full((length, 2), 0.5 * stands)
    return RecordedText(p, p, p, q, np.tile([100, 200], (length, 1)))


def recording(*texts: RecordedText) -> RecordedEpisodes:
    costs = IterationCosts(MarkovRates(20e3, 150e3, 0.05, 0.1), 8192)
    return RecordedEpisodes(texts, (10, 100), costs)


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
        departure = channel.departure_s(now + drafted * 0.010, 900 * drafted + 100)
        assert now + seconds == pytest.approx(departure + 0.050)
        now += seconds


@pytest.mark.parametrize("place", [(1, 0), (40, 64), (300, 512)])
def test_a_frame_takes_the_bits_that_the_wire_adds_to_a_block(place: tuple[int, int]) -> None:
    turn, step = place
    block = Block(1, turn, step, 0xDEADBEEF, 4, (3,), (), bytes(20))
    added = len(encode_frame(encode(block))) - len(block.payload)
    assert IterationCosts(RATES, 8192).frame_bits == pytest.approx(8 * added, abs=8 * 4)


def test_accepted_tokens_have_the_law_of_the_recording() -> None:
    """A text of two tokens ends with one block where its first draft is accepted, else with two."""
    score = recording(text(2, stands=0.6)).score(Static(Action(1, 10)), range(1000))
    second = score.iterations - 1000  # blocks
    assert score.tokens == 2000
    assert abs(second - 400) < 3.3 * math.sqrt(1000 * 0.6 * 0.4)  # p = 0.001


def test_the_seed_decides_the_text_its_verdicts_and_the_uplink() -> None:
    episodes = recording(text(40), text(50), text(60))
    scores = [episodes.score(Heuristic(10), [seed]) for seed in (1, 2, 3, 4)]
    assert scores == [episodes.score(Heuristic(10), [seed]) for seed in (1, 2, 3, 4)]
    assert all(a != b for a, b in pairwise(scores))


def test_the_best_fixed_action_has_the_highest_throughput() -> None:
    episodes, lengths = recording(text(50, stands=0.95)), (1, 4, 30)
    chosen = episodes.best_fixed(lengths, range(8))
    assert chosen.resolution == 10  # fewer bits, accepted as often
    scores = {
        (length, resolution): episodes.score(Static(Action(length, resolution)), range(8))
        for length, resolution in product(lengths, (10, 100))
    }
    speeds = {key: each.tokens / each.seconds for key, each in scores.items()}
    assert speeds[chosen.length, chosen.resolution] == max(speeds.values())


@pytest.mark.slow
def test_a_recording_holds_what_both_models_gave(pair: ModelPair) -> None:
    tasks = Tasks(bundled_prompts(pair.target)[:8], (0.7,), max_tokens=12)
    for text in pair.record(tasks, "qs:100", (5, 50), range(3)):
        assert 1 <= len(text.p) <= 12
        assert (text.p > 0).all()
        counts = text.q * (5, 50)
        np.testing.assert_allclose(counts, counts.round(), atol=1e-9)
        assert np.abs(text.q[:, 1] - text.confidence).max() <= 1 / 50
        formula = [math.ceil(math.log2(math.comb(n + 8191, 8191))) for n in (5, 50)]
        ranks = text.bits - np.array(formula)
        assert ((ranks >= 0) & (ranks <= (3, 6))).all()
