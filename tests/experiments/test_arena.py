"""The arena: answers in virtual time, and numbers that are computed once."""

from dataclasses import replace

import pytest
from dragonrt.runtime.modes.speculative import BlockShape, SpeculativePlan

from dragonrt.experiments.arena import played
from dragonrt.experiments.sides import BlockPace, PacedWorker, RecalledAnswers, text_side
from dragonrt.link.profile import LinkProfile
from dragonrt.sampling import Sampler
from dragonrt.training.model_pair import ModelPair

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


@pytest.mark.slow
def test_an_answer_is_the_runtime_s_own(pair: ModelPair) -> None:
    expected = played(
        PLAN,
        text_side("device", pair.draft, PROMPT, PLAN.seed, PacedWorker(PACE.draft_s)),
        text_side("cloud", pair.target, PROMPT, PLAN.seed, PacedWorker(PACE.target_s)),
        link=PACE.link,
    )
    answers = RecalledAnswers(pair.draft, pair.target, PROMPT, PLAN.seed)
    for _ in range(2):
        given = answers.answer(PLAN, PACE)
        assert given.answer.decisions == expected.answer.decisions
        assert given.bytes_sent == expected.bytes_sent


@pytest.mark.slow
def test_another_link_costs_time_and_no_forward(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = RecalledAnswers(pair.draft, pair.target, PROMPT, PLAN.seed)
    fast = answers.answer(PLAN, PACE)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr("dragonrt.language.batch.extend_together", refuse)
    slow = answers.answer(PLAN, replace(PACE, link=LinkProfile(latency_s=0.2, up=5e3)))
    assert slow.tokens == fast.tokens
    assert slow.seconds > 2 * fast.seconds


def test_a_plan_of_another_seed_is_refused(pair: ModelPair) -> None:
    answers = RecalledAnswers(pair.draft, pair.target, PROMPT, PLAN.seed)
    with pytest.raises(ValueError, match="seed"):
        answers.answer(replace(PLAN, seed=6), PACE)
