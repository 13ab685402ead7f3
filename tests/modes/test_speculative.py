"""The device's part of speculative decoding by itself: blocks, guesses, verdicts, thresholds."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.control.trained import Action, Controller, ControlState
from dragonrt.distributions import ConformalThreshold, backtrack, block_steps, decode_block
from dragonrt.modes.blocks import Advance, Block
from dragonrt.modes.messages import Block as BlockMessage
from dragonrt.modes.mode import Finish, ModeError
from dragonrt.modes.prefix import TokenPrefix
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.machine import SpeculativeDrafting, SpeculativeJudging
from dragonrt.modes.speculative.settings import SpeculativeResources, SpeculativeSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.scripted import SimulatedPrediction
from dragonrt.wire.fields import MAX_PAYLOAD

V = 40
RANDOM = np.random.default_rng(3)
SAYS = RANDOM.dirichlet(np.full(V, 0.3), 64).astype(np.float32)
QUESTION = Question(seed=4, sampler=Sampler(0.9), max_tokens=30)


def drafting(
    question: Question = QUESTION,
    vocabulary: int = V,
    *,
    controller: Controller | None = None,
    **fields: Any,
) -> SpeculativeDrafting:
    """One that waits for each verdict unless `fields` say otherwise."""
    settings = SpeculativeSettings(**{"pipelined": False, **fields})
    resources = SpeculativeResources(vocabulary=vocabulary, controller=controller)
    return SpeculativeDrafting(question, settings, resources)


def said(p: NDArray[np.float32]) -> list[SimulatedPrediction]:
    return [SimulatedPrediction(p, 0.0, np.zeros(1, np.float32))]


def after(line: TokenPrefix) -> list[SimulatedPrediction]:
    """What the draft model says after the line: a function of it alone."""
    return said(SAYS[line.hash % len(SAYS)])


def draft(one: SpeculativeDrafting, rate: float = math.inf) -> Block:
    """Draft until a block is complete."""
    while True:
        assert one.ready
        advance = one.take_draft(one.postprocess(rate)(after(one.prefix)))
        assert advance.decided == ()
        if advance.block is not None:
            return advance.block


def under_way(blocks: int = 2) -> tuple[SpeculativeDrafting, list[int]]:
    """One with so many blocks of three tokens under way, and its line."""
    one = drafting(block_tokens=3, pipelined=True)
    for _ in range(blocks):
        draft(one)
    return one, list(one.prefix.tokens)


def test_a_block_is_what_its_codec_reads_back() -> None:
    one = drafting(rule="rejection", codec="ksqs:5:30", block_tokens=6)
    block = draft(one)
    tokens, q = decode_block(one._codec, block.payload, block_steps(block.step, block.count))
    assert tokens == one.prefix.tokens
    assert q is not None
    assert all(each.probability(token) > 0 for each, token in zip(q, tokens, strict=True))
    assert (block.step, block.prefix_hash, block.count) == (0, one.prefix.hashes[0], 6)
    assert 8 * len(block.payload) - 16 < block.bits <= 8 * len(block.payload) - 8
    assert not one.ready


@pytest.mark.parametrize("budget", [1, 40, 90, 200])
def test_no_block_takes_more_bits_than_its_budget(budget: int) -> None:
    one = drafting(rule="rejection", codec="csqs:0.02:30", block_tokens=50, budget=budget)
    blocks = 0
    while one.finish is None:
        block = draft(one)
        assert block.bits <= budget or block.count == 1
        assert sum(each.bits for each in one.sent[0].tokens) == block.bits
        one.take_verdict(block.count, 1)
        blocks += 1
    assert blocks > 1


def test_a_block_ends_where_one_token_more_would_not_fit() -> None:
    """With the guess that follows it drafted from the same prediction."""
    whole = draft(drafting(rule="rejection", codec="qs:20", block_tokens=8))
    budget = int(3 * whole.bits / 8) + 12
    one = drafting(rule="rejection", codec="qs:20", block_tokens=8, budget=budget, pipelined=True)
    block = draft(one)
    assert len(one.prefix) == block.count + 1
    assert block.count < 8


@pytest.mark.slow
def test_a_block_of_lattice_points_fits_its_reader() -> None:
    long = replace(QUESTION, max_tokens=300)
    assert draft(drafting(long, codec="qs:10000", block_tokens=256)).count == 256
    big = drafting(long, 5000, codec="qs:10000", block_tokens=256)
    flat = said(np.full(5000, 1 / 5000, np.float32))
    block = None
    while block is None:
        block = big.take_draft(big.postprocess(math.inf)(flat)).block
    assert 2**14 < len(block.payload) <= 2**15
    judging = SpeculativeJudging(
        long, SpeculativeSettings(codec="qs:10000"), SpeculativeResources(vocabulary=5000)
    )
    judging.read(BlockMessage(1, 1, 0, 0, block.count, (), (), block.payload))
    with pytest.raises(ModeError):
        judging.read(BlockMessage(1, 1, 0, 0, 1, (), (), bytes(2**16)))


def test_a_block_of_large_distributions_fits_into_its_message() -> None:
    big = drafting(QUESTION, 2**17, rule="rejection", codec="dense:fp32", block_tokens=9)
    flat = said(np.full(2**17, 2.0**-17, np.float32))
    block = None
    while block is None:
        block = big.take_draft(big.postprocess(math.inf)(flat)).block
    assert block.count == 3
    assert len(block.payload) <= MAX_PAYLOAD


def test_a_drafted_stop_token_ends_its_block_and_the_drafting() -> None:
    first = drafting(block_tokens=8)
    draft(first)
    stop = first.prefix.tokens[3]
    assert stop not in first.prefix.tokens[:3]
    one = drafting(replace(QUESTION, stop_tokens=(stop,)), block_tokens=8, pipelined=True)
    assert draft(one).count == 4
    assert not one.ready
    advance = one.take_verdict(4, 2)
    assert [each.token for each in advance.decided] == first.prefix.tokens[:4]
    assert one.finish is Finish.STOP


def test_the_last_token_is_left_to_the_cloud() -> None:
    assert draft(drafting(replace(QUESTION, max_tokens=5), block_tokens=8)).count == 4
    one = drafting(replace(QUESTION, max_tokens=6), block_tokens=4)
    assert draft(one).count == 4
    one.take_verdict(4, 1)
    assert draft(one).count == 1  # a block has a token at least
    assert [each.token for each in one.take_verdict(0, 9).decided] == [9]
    assert one.finish is Finish.LENGTH


def test_a_right_guess_keeps_the_blocks_under_way() -> None:
    one, line = under_way()
    assert [block.step for block in one.sent] == [0, 4]
    advance = one.take_verdict(3, line[3])
    assert not advance.cut
    assert one.decided == 4
    assert one.prefix.tokens == line
    assert [each.accepted for each in advance.decided] == [True, True, True, None]


@pytest.mark.parametrize("accepted", [0, 2, 3])
def test_a_wrong_guess_or_a_refused_token_cuts_the_line(accepted: int) -> None:
    one, old = under_way()
    token = (old[accepted] + 1) % V
    advance = one.take_verdict(accepted, token)
    assert advance.cut
    assert one.prefix.tokens == [*old[:accepted], token]
    assert one.decided == len(one.prefix) == accepted + 1
    assert advance.decided[-1].accepted is (None if accepted == 3 else False)
    with pytest.raises(ModeError):
        one.take_verdict(0, 1)


def target(one: SpeculativeDrafting, token: int, step: int | None = None) -> Advance:
    """The cloud decides the next token by itself."""
    step = one.decided if step is None else step
    return one.take_target(step, one.prefix.hashes[step], token)


def test_targets_that_were_drafted_keep_the_blocks_under_way() -> None:
    one, line = under_way()
    for token, stands in zip(line[:5], (True, True, True, None, True), strict=True):
        advance = target(one, token)
        assert not advance.cut
        assert [(each.token, each.accepted) for each in advance.decided] == [(token, stands)]
    assert one.take_verdict(3, line[3]).decided == ()
    decided = one.take_verdict(3, 1).decided
    assert [each.token for each in decided] == [*line[5:7], 1]
    assert one.decided == 8


@pytest.mark.parametrize(
    ("known", "verdicts"),
    [(0, [(3, 0)]), (2, [(3, 2)]), (3, [(3, 3)]), (5, [(3, 3), (3, 1)]), (7, [(3, 3), (3, 3)])],
)
def test_a_target_that_was_not_drafted_cuts_the_line(
    known: int, verdicts: list[tuple[int, int]]
) -> None:
    one, _ = under_way()
    one.take_draft(one.postprocess(math.inf)(after(one.prefix)))  # behind the second block
    line = list(one.prefix.tokens)
    for token in line[:known]:
        target(one, token)
    other = (line[known] + 1) % V
    advance = target(one, other)
    assert advance.cut
    assert [verdict[:2] for verdict in advance.verdicts] == verdicts
    assert advance.verdicts[-1][2] == other
    assert one.prefix.tokens == [*line[:known], other]
    assert one.decided == len(one.prefix)
    with pytest.raises(ModeError):
        one.take_verdict(0, 1)
    assert draft(one).step == known + 1


def test_contradicting_targets_and_verdicts_are_refused() -> None:
    one, line = under_way(1)
    with pytest.raises(ModeError):
        target(one, line[1], step=1)
    with pytest.raises(ModeError):
        one.take_target(0, 7, line[0])
    target(one, line[0])
    target(one, line[1])
    with pytest.raises(ModeError):
        one.take_verdict(1, (line[1] + 1) % V)


def test_a_refusal_in_favour_of_the_same_token_cuts_all_the_same() -> None:
    """The cloud's text ends there, whatever it says."""
    one, line = under_way()
    assert one.take_verdict(1, line[1]).cut
    assert len(one.prefix) == 2


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("lost", [False, True])
def test_the_threshold_is_algorithm_1s(pipelined: bool, lost: bool) -> None:
    """Whatever is drafted ahead or lost, a block begins with what the verdicts before it left."""
    one = drafting(
        rule="rejection",
        codec="csqs:0.1:50",
        block_tokens=4,
        pipelined=pipelined,
        learning_rate=0.1,
        target=0.02,
    )
    threshold = ConformalThreshold(0.1, 0.1, 0.02)
    moved: list[tuple[int, float, float]] = []
    for accepted in (4, 0, 2, 4, 3):
        while one.ready:
            one.take_draft(one.postprocess(math.inf)(after(one.prefix)))
        if lost:
            one.rewind()
            assert len(one.prefix) == one.decided
            draft(one)
        block = one.sent[0]
        assert block.start.threshold == threshold
        dropped = [each.quantized.dropped for each in block.tokens]
        one.take_verdict(accepted, 7)
        threshold = backtrack(threshold, dropped, accepted)
        moved += block.thresholds(accepted)
    assert [step for step, _, _ in moved] == list(range(one.decided))
    following = ConformalThreshold(0.1, 0.1, 0.02)
    for _, beta, mass in moved:
        assert beta == pytest.approx(following.beta, abs=1e-15)
        following = following.after(mass)
    assert following.beta == pytest.approx(threshold.beta, abs=1e-15)


class Asked(Controller):
    """A controller that keeps what it saw."""

    name = "asked"

    def __init__(self) -> None:
        self.states: list[ControlState] = []

    @override
    def choose(self, state: ControlState) -> Action:
        self.states.append(state)
        return Action(3, 25)


def test_a_controller_sees_what_the_verdicts_left() -> None:
    asked = Asked()
    one = drafting(rule="rejection", codec="ksqs:5:30", controller=asked)
    largest = [after(one.prefix)[0].p.max()]
    block = draft(one, rate=5e4)
    assert (block.count, block.resolutions) == (3, (25,))
    q = [each.q for each in block.tokens if each.q is not None]
    given, replaced = float(q[0][block.tokens[0].token]), float(q[1][8])
    one.take_verdict(1, 8)
    largest.append(after(one.prefix)[0].p.max())
    draft(one)
    first, second = (each.next_confidence for each in asked.states)
    assert [first, second] == largest
    assert asked.states[0] == ControlState((), first, 5e4, 0, 0)
    assert asked.states[1] == ControlState((given, replaced), second, math.inf, 1, 2)
    one.take_verdict(3, 8)
    draft(one)
    assert len(asked.states[2].confidences) == 5
    assert (asked.states[2].accepted, asked.states[2].drafted) == (3, 3)


def test_codecs_without_a_lattice_send_no_resolution() -> None:
    assert draft(drafting(codec="ids", controller=Asked())).resolutions == ()


def test_the_baseline_drafts_from_what_the_model_said() -> None:
    """Tokens may then be none that the lattice gives mass, so they travel by id."""
    one = drafting(rule="sample-quantize", codec="ksqs:1:1", block_tokens=8)
    block = draft(one)
    tokens, q = decode_block(one._codec, block.payload, block_steps(block.step, block.count))
    assert q is not None
    assert tokens == one.prefix.tokens
    assert any(each.probability(token) == 0 for each, token in zip(q, tokens, strict=True))
