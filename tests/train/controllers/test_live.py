"""A pair of real models: what is read, recorded, and drafted live over an uplink."""

import math

import numpy as np
import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.control.policies import Action, Controller, Heuristic, Static
from dragonrt.link.markov import MarkovRates
from scripts.train.controllers.course import IterationCosts
from scripts.train.controllers.live import LiveEnvironment
from scripts.train.controllers.model_pair import AnswerReader, ModelPair, Tasks
from scripts.train.controllers.prompt import Prompt
from scripts.train.controllers.task_prompts import bundled_prompts

pytestmark = pytest.mark.slow

RATES = MarkovRates(20e3, 150e3, 0.05, 0.1)
MAX_TOKENS = 12


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return ModelPair(LanguageModel.load("dragon-draft"), LanguageModel.load("dragon-small"))


def tasks(pair: ModelPair, *temperatures: float) -> Tasks:
    return Tasks(bundled_prompts(pair.target)[:8], temperatures, MAX_TOKENS)


def live(pair: ModelPair, codec: str, *temperatures: float) -> LiveEnvironment:
    costs = IterationCosts(RATES, pair.target.vocabulary)
    return LiveEnvironment(pair, tasks(pair, *temperatures), codec, costs)


def answered(environment: LiveEnvironment, controller: Controller, seed: int) -> tuple[int, ...]:
    """The answer of an episode; what its steps say of it is checked."""
    state, done, tokens = environment.reset(seed), False, 0
    while not done:
        action = controller.choose(state)
        step = environment.step(action)
        assert step.state.accepted <= step.state.drafted <= action.length
        assert step.state.accepted <= step.tokens <= step.state.accepted + 1
        assert len(step.state.confidences) <= tokens + step.tokens
        assert 1 / step.seconds <= step.reward <= (1 + action.length) / step.seconds + 1e-9
        state, done, tokens = step.state, step.done, tokens + step.tokens
    assert tokens == len(environment.answer) <= MAX_TOKENS
    return environment.answer


@pytest.mark.parametrize("codec", ["qs:100", "ksqs:8:50"])
def test_at_temperature_0_every_controller_gets_the_targets_text(
    pair: ModelPair, codec: str
) -> None:
    environment = live(pair, codec, 0.0)
    expected = greedy(pair.target, tasks(pair, 0.0).choose(1)[0])
    for controller in (Static(Action(5, 3)), Heuristic(20)):
        assert list(answered(environment, controller, 1)) == expected


def greedy(model: LanguageModel, prompt: Prompt) -> list[int]:
    reader = AnswerReader(model, prompt.tokens, 64)
    answer: list[int] = []
    while len(answer) < MAX_TOKENS and not set(answer[-1:]) & set(prompt.stops):
        answer.append(int(reader.after(answer, len(answer))[0].argmax()))
    return answer


def test_the_seed_decides_everything(pair: ModelPair) -> None:
    environment = live(pair, "qs:100", 0.5, 1.0)
    answers = [answered(environment, Heuristic(10), seed) for seed in range(3)]
    assert answers == [answered(environment, Heuristic(10), seed) for seed in range(3)]
    assert len(set(answers)) > 1


def test_a_recording_holds_what_both_models_gave(pair: ModelPair) -> None:
    asked = tasks(pair, 0.7)
    done: list[int] = []
    made = pair.record(asked, "qs:100", (5, 50), range(3), lambda at, _: done.append(at))
    assert done == [0, 1, 2]
    assert (made.draft, made.target) == ("dragon-draft", "dragon-small")
    for text in made.texts:
        assert 1 <= len(text.p) <= MAX_TOKENS
        assert (text.p > 0).all()
        assert ((text.overlap > 0) & (text.overlap <= 1 + 1e-9)).all()
        counts = text.q * (5, 50)
        np.testing.assert_allclose(counts, counts.round(), atol=1e-9)
        fine = text.q[:, 1]
        assert np.abs(fine - text.confidence).max() <= 1 / 50
        formula = [math.ceil(math.log2(math.comb(n + 8191, 8191))) for n in (5, 50)]
        assert (text.bits >= formula).all()
        ranks = text.bits - np.array(formula)
        assert (ranks <= (3, 6)).all()
