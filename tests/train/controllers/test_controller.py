"""Training of a controller: it learns what no fixed action can do, and is kept with its origin."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragonrt.control.learned import Learned, controller
from dragonrt.link.markov import MarkovRates
from scripts.lab.course import IterationCosts, best, grid
from scripts.lab.recording import PairRecording, RecordedEnvironment, RecordedText
from scripts.train.controllers.controller_plan import (
    ControllerPlan,
    compare,
    encoding,
    train_controller,
)
from scripts.train.controllers.double_dqn import Hyperparameters

pytestmark = pytest.mark.slow

RATES = MarkovRates(20e3, 150e3, 0.05, 0.1)


def two_kinds(resolutions: tuple[int, ...]) -> PairRecording:
    """Texts of which every drafted token is accepted, and texts of which hardly any is.

    Confidences tell which is which; the finer resolution gains nothing.
    """
    bits = np.tile(10 * np.array(resolutions), (60, 1))

    def text(accepted: float) -> RecordedText:
        p, same = np.full(60, 0.8), np.ones((60, len(resolutions)))
        q = 0.8 * accepted * same
        return RecordedText(p, p * accepted, p * accepted, q, accepted * same, bits)

    texts = tuple(text(accepted) for accepted in (1.0, 0.1) * 3)
    return PairRecording("small", "large", "qs:100", resolutions, 8192, texts)


def test_it_learns_what_no_fixed_action_can_do() -> None:
    environment = RecordedEnvironment(two_kinds((10, 100)), IterationCosts(RATES, 8192))
    settings = Hyperparameters(1000, 0.0, learning_rate=5e-3, warm_up=200, hidden=16)
    settings = replace(settings, averaging=0.02, copy_every=20)
    encoded = encoding(RATES, (1, 8), (10, 100))
    fixed = grid(environment, (1, 8), (10, 100), range(20))
    beaten = fixed[best(fixed)].tokens_per_s
    before, learned = train_controller(
        environment, encoded, settings, beaten, 1, lambda done, of: None
    )
    compared = compare(learned, before, environment, range(10**6, 10**6 + 20))
    scores = {name.split(",")[0]: score.tokens_per_s for name, score in compared.items()}
    assert list(scores) == ["untrained", "learned", "best static", "heuristic"]
    assert scores["learned"] > max(1.03 * scores["best static"], scores["untrained"])
    assert [name for name in compared if name.endswith("ℓ = 10")], "the finer one gains nothing"


def test_the_command_trains_compares_and_keeps(run: Callable[..., Any], tmp_path: Path) -> None:
    trace, out = tmp_path / "trace.npz", tmp_path / "mine"
    two_kinds(ControllerPlan().resolutions).save(trace)
    arguments = ("--trace", str(trace), "--out", str(out), "--steps", "50")
    outcome = run("controller", *arguments, script="train")
    assert outcome.code == 0, outcome.errors
    table = [line.split() for line in outcome.output.splitlines()]
    assert [line[0] for line in table] == [
        *("controller", "untrained", "learned", "best", "heuristic,")
    ]
    kept = controller(str(out))
    assert isinstance(kept, Learned)
    about = kept.trained_on
    assert (about["draft"], about["target"], about["steps"]) == ("small", "large", 50)
    assert about["costs"]["up"]["low"] > 0
    scores = about["held_out_tokens_per_s"].values()
    assert list(scores) == pytest.approx([float(line[-1]) for line in table[1:]], abs=6e-3)
