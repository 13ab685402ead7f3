"""Answers in virtual time whose numbers are computed once."""

from dataclasses import replace

import pytest

from dragonrt.experiments.paced_blocks import BlockPace, paced_speculation
from dragonrt.experiments.recalled import RecalledAnswers, seconds
from dragonrt.experiments.speculation import Pair
from dragonrt.language.model import LanguageModel
from dragonrt.language.sequence import Sequence
from dragonrt.link.profile import LinkProfile
from dragonrt.runtime.modes.speculative import BlockShape, SpeculativePlan
from dragonrt.sampling import Sampler

PROMPT = [40, 41, 42, 43]
PLAN = SpeculativePlan(
    seed=5,
    sampler=Sampler(0.8),
    rule="rejection",
    codec="ksqs:8:100",
    max_tokens=10,
    shape=BlockShape(length=3, outstanding=1),
)
PACE = BlockPace(0.01, 0.05, LinkProfile(latency_s=0.02, up=50e3))


@pytest.fixture(scope="session")
def pair(model: LanguageModel) -> Pair:
    return Pair(LanguageModel.load("dragon-draft"), model)


@pytest.mark.slow
def test_an_answer_is_the_runtime_s_own(pair: Pair) -> None:
    expected, _ = paced_speculation(pair.draft, pair.target, PROMPT, PLAN, PACE)
    answers = RecalledAnswers(pair, PROMPT, PLAN.seed)
    for _ in range(2):
        given = answers.answer(PLAN, PACE)
        assert given.decisions == expected.decisions
        assert given.bytes_sent == expected.bytes_sent


@pytest.mark.slow
def test_another_link_costs_time_and_no_forward(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = RecalledAnswers(pair, PROMPT, PLAN.seed)
    fast = answers.answer(PLAN, PACE)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(Sequence, "extend_hidden", refuse)
    slow = answers.answer(PLAN, replace(PACE, link=LinkProfile(latency_s=0.2, up=5e3)))
    assert slow.tokens == fast.tokens
    assert seconds(slow) > 2 * seconds(fast)


def test_a_plan_of_another_seed_is_refused(pair: Pair) -> None:
    answers = RecalledAnswers(pair, PROMPT, PLAN.seed)
    with pytest.raises(ValueError, match="seed"):
        answers.answer(replace(PLAN, seed=6), PACE)
