"""Training of a controller: it learns what no fixed action can do, and says from what."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dragonrt.control.learned import Learned
from dragonrt.link.markov import MarkovRates
from scripts.train.artefact import save_controller
from scripts.train.controllers.controller import (
    compare,
    encoding,
    train_controller,
    untrained,
)
from scripts.train.controllers.controller_plan import ControllerPlan
from scripts.train.controllers.course import IterationCosts
from scripts.train.controllers.double_dqn import Hyperparameters
from scripts.train.controllers.evaluation import best, grid
from scripts.train.controllers.recording import PairRecording, RecordedEnvironment, RecordedText

RATES = MarkovRates(20e3, 150e3, 0.05, 0.1)
PLAN = ControllerPlan(lengths=(1, 8), resolutions=(10, 100), texts=6, steps=50)


def two_kinds() -> PairRecording:
    """Texts of which every drafted token is accepted, and texts of which hardly any is.

    Confidences tell which is which; the finer resolution gains nothing.
    """
    bits = np.tile((100, 1000), (60, 1))

    def text(stands: float) -> RecordedText:
        p = np.full(60, 0.8)
        q = np.full((60, 2), 0.8 * stands)
        return RecordedText(p, p * stands, p * stands, q, np.full((60, 2), stands), bits)

    texts = tuple(text(stands) for stands in (1.0, 0.1) * 3)
    return PairRecording("small", "large", "qs:100", (10, 100), 8192, texts)


@pytest.mark.slow
def test_it_learns_what_no_fixed_action_can_do() -> None:
    environment = RecordedEnvironment(two_kinds(), IterationCosts(RATES, 8192))
    settings = Hyperparameters(1000, 0.0, learning_rate=5e-3, warm_up=200, hidden=16)
    settings = replace(settings, averaging=0.02, copy_every=20)
    encoded = encoding(RATES, (1, 8), (10, 100))
    fixed = grid(environment, (1, 8), (10, 100), range(20))
    beaten = fixed[best(fixed)].tokens_per_s
    learned = train_controller(environment, encoded, settings, beaten, 1, lambda done, of: None)
    before = untrained(encoded, settings, 1)
    compared = compare(learned, before, environment, range(10**6, 10**6 + 20))
    assert compared.learned.tokens_per_s > 1.03 * compared.static.tokens_per_s
    assert compared.learned.tokens_per_s > compared.untrained.tokens_per_s
    assert compared.best_static.resolution == 10
    assert list(compared.rows().values()) == [
        compared.untrained,
        compared.learned,
        compared.static,
        compared.heuristic,
    ]


@pytest.mark.slow
def test_a_plan_makes_a_controller_that_says_what_it_learned_from(tmp_path: Path) -> None:
    learned, compared = PLAN.train(two_kinds(), None, lambda done, of: None)
    save_controller(learned, tmp_path / "mine")
    about = Learned.load(tmp_path / "mine").trained_on
    assert (about["draft"], about["target"]) == ("small", "large")
    assert (about["environment"], about["link"], about["steps"]) == (
        "recorded",
        "nb-iot-markov",
        50,
    )
    assert about["costs"]["up"]["low"] == 20e3
    assert list(about["held_out_tokens_per_s"].values()) == pytest.approx(
        [score.tokens_per_s for score in compared.rows().values()], abs=1e-3
    )
