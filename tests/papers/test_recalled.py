"""The arena: answers in virtual time, and numbers that are computed once."""

from dataclasses import replace

import pytest

from dragonrt.link.profile import LinkProfile
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.sampling.samplers import Sampler
from scripts.lab.arena import played
from scripts.lab.model_pair import ModelPair
from scripts.lab.model_sides import text_side
from scripts.papers.speculation import BlockPace, RecalledAnswers

PROMPT = [40, 41, 42, 43]
ASKED = Question(seed=5, sampler=Sampler(0.8), max_tokens=10)
SETTINGS = SpeculativeSettings(
    rule="rejection", codec="ksqs:8:100", block_tokens=3, pipelined=False
)
PACE = BlockPace(0.01, 0.05, LinkProfile(latency_s=0.02, up=50e3))


@pytest.mark.slow
def test_an_answer_is_the_runtime_s_own(pair: ModelPair) -> None:
    expected = played(
        ASKED,
        SETTINGS,
        text_side("device", pair.draft, PROMPT, ASKED.seed, PACE.draft_s),
        text_side("cloud", pair.target, PROMPT, ASKED.seed, PACE.target_s),
        link=PACE.link,
    )
    answers = RecalledAnswers(pair, PROMPT, ASKED)
    for _ in range(2):
        given = answers.answer(SETTINGS, PACE)
        assert given.answer.decisions == expected.answer.decisions
        assert given.wire_bytes == expected.wire_bytes


@pytest.mark.slow
def test_another_link_costs_time_and_no_forward(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = RecalledAnswers(pair, PROMPT, ASKED)
    fast = answers.answer(SETTINGS, PACE)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr("dragonrt.backends.prefix_cache.run_alone", refuse)
    slow = answers.answer(SETTINGS, replace(PACE, link=LinkProfile(latency_s=0.2, up=5e3)))
    assert slow.tokens == fast.tokens
    assert slow.seconds > 2 * fast.seconds
