"""Recorded texts: files, and episodes that have the law of speculative decoding."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dragonrt.control.policies import Action, Heuristic, Static
from dragonrt.link.models import MarkovRates
from scripts.lab.course import IterationCosts, best, evaluate, grid
from scripts.lab.model_pair import ModelPair, Tasks
from scripts.lab.prompt import bundled_prompts
from scripts.lab.recording import PairRecording, RecordedEnvironment, RecordedText

COSTS = IterationCosts(MarkovRates(20e3, 150e3, 0.05, 0.1), 8192)


def text(length: int, stands: float = 0.5, resolutions: int = 2) -> RecordedText:
    """Every token is accepted with probability `stands`, at any resolution."""
    p = np.full(length, 0.5)
    q = np.full((length, resolutions), 0.5 * stands)
    bits = np.tile(100 * np.arange(1, resolutions + 1), (length, 1))
    return RecordedText(p, p, p, q, np.full(q.shape, stands), bits)


def recording(*texts: RecordedText) -> PairRecording:
    return PairRecording("small", "large", "qs:100", (10, 100), 8192, texts)


def test_a_recording_is_kept(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    texts = []
    for n in (3, 1, 7):
        p, confidence, likeliest = generator.random((3, n))
        q, overlap = generator.random((2, n, 2))
        texts.append(RecordedText(p, confidence, likeliest, q, overlap, np.full((n, 2), 7 * n)))
    made = recording(*texts)
    made.save(tmp_path / "made.npz")
    again = PairRecording.load(tmp_path / "made.npz")
    assert (again.draft, again.target, again.codec) == ("small", "large", "qs:100")
    assert (again.resolutions, again.vocabulary) == ((10, 100), 8192)
    for old, new in zip(made.texts, again.texts, strict=True):
        for name in RecordedText.__slots__:
            assert getattr(old, name).tobytes() == getattr(new, name).tobytes()


def test_accepted_tokens_have_the_law_of_the_recording() -> None:
    environment = RecordedEnvironment(recording(text(1000, stands=0.6)), COSTS)
    environment.reset(1)
    counts = np.zeros(4, int)
    for _ in range(250):
        step = environment.step(Action(3, 10))
        counts[step.tokens - 1] += 1
        accepted = 0.6 + 0.6**2 + 0.6**3  # and the target's own token
        assert step.reward == pytest.approx((accepted + 1) / step.seconds)
    expected = 250 * np.array([0.4, 0.4 * 0.6, 0.4 * 0.36, 0.216])
    assert (((counts - expected) ** 2) / expected).sum() < 16.3  # chi-square, 3 degrees: p = 0.001


def test_the_seed_decides_the_text_its_verdicts_and_the_uplink() -> None:
    environment = RecordedEnvironment(recording(text(40), text(50), text(60)), COSTS)
    scores = [evaluate(Heuristic(10), environment, [seed]) for seed in (1, 2, 3, 4)]
    assert scores == [evaluate(Heuristic(10), environment, [seed]) for seed in (1, 2, 3, 4)]
    assert all(a != b for a, b in pairwise(scores))


def test_the_grid_finds_the_best_fixed_action() -> None:
    environment = RecordedEnvironment(recording(text(50, stands=0.95)), COSTS)
    scores = grid(environment, (1, 4, 30), (10, 100), range(8))
    assert set(scores) == {Action(a, b) for a in (1, 4, 30) for b in (10, 100)}
    chosen = best(scores)
    assert chosen.resolution == 10  # fewer bits, accepted as often
    assert scores[chosen].tokens_per_s == max(one.tokens_per_s for one in scores.values())
    assert scores[chosen] == evaluate(Static(chosen), environment, range(8))
    assert scores[chosen].mean_reward > 0


@pytest.mark.slow
def test_a_recording_holds_what_both_models_gave(pair: ModelPair) -> None:
    tasks = Tasks(bundled_prompts(pair.target)[:8], (0.7,), max_tokens=12)
    done: list[int] = []
    made = pair.record(tasks, "qs:100", (5, 50), range(3), lambda at, _: done.append(at))
    assert done == [0, 1, 2]
    assert (made.draft, made.target) == ("dragon-draft", "dragon-small")
    for text in made.texts:
        assert 1 <= len(text.p) <= 12
        assert (text.p > 0).all()
        assert ((text.overlap > 0) & (text.overlap <= 1 + 1e-9)).all()
        counts = text.q * (5, 50)
        np.testing.assert_allclose(counts, counts.round(), atol=1e-9)
        assert np.abs(text.q[:, 1] - text.confidence).max() <= 1 / 50
        formula = [math.ceil(math.log2(math.comb(n + 8191, 8191))) for n in (5, 50)]
        ranks = text.bits - np.array(formula)
        assert ((ranks >= 0) & (ranks <= (3, 6))).all()
