"""Blocks in one process or in virtual time: texts are the target's, budgets are kept."""

from dataclasses import replace
from pathlib import Path

import pytest

from dragonrt.distributions import ConformalThreshold, codec
from dragonrt.errors import DragonError
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import speculative_rule
from dragonrt.sampling.samplers import Sampler
from scripts.lab.arena import played
from scripts.lab.model_pair import ModelPair
from scripts.lab.model_sides import text_side
from scripts.lab.prompt import Prompt
from scripts.papers.speculation import BlockPace, RecalledAnswers, Speculation, alone, both_behind
from scripts.papers.texts import prompts

PROMPT = Prompt("prose", (40, 41, 42, 43))
TOKENS = 12


@pytest.mark.slow
def test_a_coupled_text_is_what_the_target_alone_gives(pair: ModelPair) -> None:
    rule = speculative_rule("coupled", Noise(3), Sampler(0.3))
    speculation = Speculation(pair=pair, codec=codec("ids", pair.draft.vocabulary), length=2)
    blocks = list(speculation.blocks(PROMPT, rule, TOKENS))
    text = [token for block in blocks for token in block.tokens]
    readers = both_behind(pair, PROMPT, len(text))
    for _ in range(2):  # the second time, the readers hold another text
        assert alone(readers[1], PROMPT.stops, rule, len(text)) == text
        again = speculation.blocks(PROMPT, rule, TOKENS, readers)
        assert [token for block in again for token in block.tokens] == text
    assert len(text) >= TOKENS
    assert {block.rejected for block in blocks} == {True, False}


@pytest.mark.slow
def test_a_block_ends_before_its_bits_exceed_the_budget(pair: ModelPair) -> None:
    rule = speculative_rule("rejection", Noise(3), Sampler(1.0))
    coder = codec("ksqs:16:100", pair.draft.vocabulary)
    speculation = Speculation(pair=pair, codec=coder, length=20, budget=1000)
    for block in speculation.blocks(PROMPT, rule, TOKENS):
        bits = [each.quantized.bits + each.quantized.token_bits for each in block.drafted]
        assert sum(bits) <= 1000
        assert sum(bits) + max(bits) > 1000 - 20, "one token more would not have fitted"


@pytest.mark.slow
def test_the_threshold_moves_once_for_every_token_of_the_text(pair: ModelPair) -> None:
    rule = speculative_rule("rejection", Noise(3), Sampler(1.0))
    coder = codec("csqs:0.01:100", pair.draft.vocabulary)
    start = ConformalThreshold(0.01, eta=0.01, alpha=0.0005)
    speculation = Speculation(pair=pair, codec=coder, length=4, threshold=start)
    expected = start.beta
    for block in speculation.blocks(PROMPT, rule, TOKENS):
        dropped = [each.quantized.dropped for each in block.judged]
        dropped += [] if block.rejected else dropped[-1:]
        assert len(dropped) == len(block.tokens)
        expected -= 0.01 * (sum(dropped) - 0.0005 * len(dropped))
        assert speculation.threshold is not None
        assert speculation.threshold.beta == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_prompts_alternate_or_are_pieces_of_a_corpus(pair: ModelPair, tmp_path: Path) -> None:
    model = pair.draft
    sample = prompts(model, 20)
    assert [prompt.kind for prompt in sample] == ["answers", "prose"] * 20
    asked = model.decode(sample[0].tokens)
    assert asked.startswith("Document: ")
    assert asked.endswith("\nAnswer:")
    assert set(model.encode("\n")) < set(sample[0].stops)
    assert sample[1].stops == ()
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(" ".join(f"{number:04}" for number in range(1000)))
    pieces = [model.decode(piece.tokens) for piece in prompts(model, 4, [corpus])]
    assert [piece.split()[0] for piece in pieces] == ["0800", "0848", "0896", "0944"]
    with pytest.raises(DragonError):
        prompts(model, 100, [corpus])


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
        text_side("device", pair.draft, PROMPT.tokens, ASKED.seed, PACE.draft_s),
        text_side("cloud", pair.target, PROMPT.tokens, ASKED.seed, PACE.target_s),
        link=PACE.link,
    )
    answers = RecalledAnswers(pair, PROMPT.tokens, ASKED)
    for _ in range(2):
        given = answers.answer(SETTINGS, PACE)
        assert given.answer.decisions == expected.answer.decisions
        assert given.wire_bytes == expected.wire_bytes


@pytest.mark.slow
def test_another_link_costs_time_and_no_forward(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = RecalledAnswers(pair, PROMPT.tokens, ASKED)
    fast = answers.answer(SETTINGS, PACE)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr("dragonrt.backends.prefix_cache.run_alone", refuse)
    slow = answers.answer(SETTINGS, replace(PACE, link=LinkProfile(latency_s=0.2, up=5e3)))
    assert slow.tokens == fast.tokens
    assert slow.seconds > 2 * fast.seconds
