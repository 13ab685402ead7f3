"""The device's part of speculative decoding by itself: blocks, guesses, verdicts, thresholds."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dragonrt.control import Action, ControlState
from dragonrt.distributions import ConformalThreshold, backtrack, block_steps, decode_block
from dragonrt.errors import DragonError
from dragonrt.runtime.modes.blocks import Advance, BlockError, EncodedBlock
from dragonrt.runtime.modes.speculative import (
    BlockShape,
    SpeculativeDrafting,
    SpeculativePlan,
    SpeculativeVerifying,
)
from dragonrt.runtime.outcome import Finish
from dragonrt.runtime.predictor import NextToken
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.speculative import Verdict
from dragonrt.sampling.stopping import AdaEDL
from dragonrt.wire import messages as wire
from dragonrt.wire.limits import MAX_PAYLOAD

V = 40
RANDOM = np.random.default_rng(3)
SAYS = RANDOM.dirichlet(np.full(V, 0.3), 64).astype(np.float32)


def plan(**fields: Any) -> SpeculativePlan:
    shape = fields.pop("shape", {})
    given = {"seed": 4, "sampler": Sampler(0.9), "max_tokens": 30, **fields}
    return SpeculativePlan(**given, shape=BlockShape(**{"outstanding": 1, **shape}))


def drafting(**fields: Any) -> SpeculativeDrafting:
    return SpeculativeDrafting(plan(**fields), V)


def said(drafting: SpeculativeDrafting) -> NextToken:
    """What the draft model says after the line: a function of it alone."""
    p = SAYS[drafting.line.hash % len(SAYS)]
    return NextToken(p, 0.0, np.zeros(1, np.float32))


def draft(drafting: SpeculativeDrafting, rate: float = math.inf) -> EncodedBlock:
    """Draft until a block is complete."""
    while True:
        assert drafting.ready
        advance: Advance = drafting.draft(said(drafting), rate)
        assert advance.decided == ()
        if advance.block is not None:
            return advance.block


def verdict(accepted: int, token: int = 1) -> wire.Verdict:
    return wire.Verdict(1, 1, accepted, token, 0)


def test_a_block_is_what_its_codec_reads_back() -> None:
    one = drafting(rule="rejection", codec="ksqs:5:30", shape={"length": 6})
    block = draft(one)
    tokens, q = decode_block(one._codec, block.payload, block_steps(block.step, block.count))
    assert tokens == one.line.tokens
    assert q is not None
    assert all(each.probability(token) > 0 for each, token in zip(q, tokens, strict=True))
    assert (block.step, block.prefix_hash, block.count) == (0, one.line.hashes[0], 6)
    assert 8 * len(block.payload) - 16 < block.bits <= 8 * len(block.payload) - 8
    assert not one.ready


@pytest.mark.parametrize("budget", [1, 40, 90, 200])
def test_no_block_takes_more_bits_than_its_budget(budget: int) -> None:
    one = drafting(rule="rejection", codec="csqs:0.02:30", shape={"length": 50, "budget": budget})
    while one.finish is None:
        block = draft(one)
        assert block.bits <= budget or block.count == 1
        bits = [each.bits for each in one._sent[0].tokens]
        assert sum(bits) == block.bits
        one.take(verdict(block.count))


def test_a_block_ends_where_one_token_more_would_not_fit() -> None:
    """With the guess that follows it drafted from the same prediction."""
    whole = drafting(rule="rejection", codec="qs:20", shape={"length": 8})
    per_token = draft(whole).bits / 8
    shape = {"length": 8, "budget": int(3 * per_token) + 12, "outstanding": 2}
    one = drafting(rule="rejection", codec="qs:20", shape=shape)
    block = draft(one)
    assert len(one.line) == block.count + 1
    assert block.count < 8


@pytest.mark.slow
def test_no_block_of_lattice_points_is_longer_than_its_reader_takes() -> None:
    one = drafting(codec="qs:10000", max_tokens=300, shape={"length": 256})
    assert draft(one).count == 256
    wide = replace(plan(codec="qs:10000", max_tokens=300), shape=BlockShape(length=256))
    big = SpeculativeDrafting(wide, 5000)
    said_by_big = NextToken(np.full(5000, 1 / 5000, np.float32), 0.0, np.zeros(1, np.float32))
    block = None
    while block is None:
        block = big.draft(said_by_big, math.inf).block
    assert 2**14 < len(block.payload) <= 2**15
    SpeculativeVerifying(wide, 5000).read(
        wire.Block(1, 1, 0, 0, block.count, (), (), block.payload)
    )


def test_a_drafted_stop_token_ends_its_block_and_the_drafting() -> None:
    first = drafting(shape={"length": 8})
    draft(first)
    stop = first.line.tokens[3]
    assert stop not in first.line.tokens[:3]
    one = drafting(shape={"length": 8, "outstanding": 3}, stop_tokens=(stop,))
    assert draft(one).count == 4
    assert not one.ready
    advance = one.take(verdict(4, 2))
    assert [each.token for each in advance.decided] == first.line.tokens[:4]
    assert one.finish is Finish.STOP


def test_the_last_token_is_left_to_the_cloud() -> None:
    one = drafting(max_tokens=6, shape={"length": 4})
    assert draft(one).count == 4
    one.take(verdict(4))
    assert draft(one).count == 1  # a block has a token at least
    assert [each.token for each in one.take(verdict(0, 9)).decided] == [9]
    assert one.finish is Finish.LENGTH


def test_a_right_guess_keeps_the_blocks_under_way() -> None:
    one = drafting(shape={"length": 3, "outstanding": 2})
    first, second = draft(one), draft(one)
    assert (first.step, second.step) == (0, 4)
    guess = one.line.tokens[3]
    line = list(one.line.tokens)
    advance = one.take(verdict(3, guess))
    assert not advance.cut
    assert one.decided == 4
    assert one.line.tokens == line
    assert [each.stands for each in advance.decided] == [True, True, True, None]


@pytest.mark.parametrize("accepted", [0, 2, 3])
def test_a_wrong_guess_or_a_refused_token_cuts_the_line(accepted: int) -> None:
    one = drafting(shape={"length": 3, "outstanding": 2})
    draft(one)
    draft(one)
    old = list(one.line.tokens)
    token = (old[accepted] + 1) % V
    advance = one.take(verdict(accepted, token))
    assert advance.cut
    assert one.line.tokens == [*old[:accepted], token]
    assert one.decided == len(one.line) == accepted + 1
    assert advance.decided[-1].stands is (None if accepted == 3 else False)
    with pytest.raises(BlockError):
        one.take(verdict(0))


def test_a_refusal_in_favour_of_the_same_token_cuts_all_the_same() -> None:
    """The cloud's text ends there, whatever it says."""
    one = drafting(shape={"length": 3, "outstanding": 2})
    draft(one)
    draft(one)
    assert one.take(verdict(1, one.line.tokens[1])).cut
    assert len(one.line) == 2


@pytest.mark.parametrize("outstanding", [1, 3])
@pytest.mark.parametrize("lost", [False, True])
def test_the_threshold_is_algorithm_1s(outstanding: int, lost: bool) -> None:
    """Whatever is drafted ahead or lost, a block begins with what the verdicts before it left."""
    shape = {"length": 4, "outstanding": outstanding, "learning_rate": 0.1, "target": 0.02}
    one = drafting(rule="rejection", codec="csqs:0.1:50", shape=shape)
    threshold = ConformalThreshold(0.1, 0.1, 0.02)
    moved: list[tuple[int, float, float]] = []
    for accepted in (4, 0, 2, 4, 3):
        while one.ready:
            one.draft(said(one), math.inf)
        if lost:
            one.rewind()
            assert len(one.line) == one.decided
            draft(one)
        block = one._sent[0]
        assert block.start.threshold == threshold
        dropped = [each.quantized.dropped for each in block.tokens]
        advance = one.take(verdict(accepted, 7))
        threshold = backtrack(threshold, dropped, accepted)
        moved += advance.thresholds
    assert [step for step, _, _ in moved] == list(range(one.decided))
    following = ConformalThreshold(0.1, 0.1, 0.02)
    for _, beta, mass in moved:
        assert beta == pytest.approx(following.beta, abs=1e-15)
        following = following.after(mass)
    assert following.beta == pytest.approx(threshold.beta, abs=1e-15)


class Asked:
    """A controller that keeps what it saw."""

    name = "asked"

    def __init__(self) -> None:
        self.states: list[ControlState] = []

    def choose(self, state: ControlState) -> Action:
        self.states.append(state)
        return Action(3, 25)


def test_a_controller_sees_what_the_verdicts_left() -> None:
    asked = Asked()
    one = drafting(rule="rejection", codec="ksqs:5:30", shape={"controller": asked})
    block = draft(one, rate=5e4)
    assert (block.count, block.resolutions) == (3, (25,))
    given = [float(each.q[each.token]) for each in one._sent[0].tokens]
    replaced = float(one._sent[0].tokens[1].q[8])
    one.take(verdict(1, 8))
    draft(one)
    assert asked.states[0] == ControlState((), 5e4, 0, 0)
    assert asked.states[1] == ControlState((given[0], replaced), math.inf, 1, 2)
    one.take(verdict(3, 8))
    draft(one)
    assert len(asked.states[2].confidences) == 5
    assert (asked.states[2].accepted, asked.states[2].drafted) == (3, 3)


@pytest.mark.parametrize("accepted", [0, 1, 2, 4])
def test_nothing_behind_a_refused_token_is_carried_on(accepted: int) -> None:
    """A block leaves the same to the next one as if it had ended with the refused token."""
    stopping = AdaEDL(longest=9, threshold=0.1)
    shape = {"length": 5, "learning_rate": 0.1, "target": 0.02, "stopping": stopping}
    one = drafting(rule="rejection", codec="csqs:0.1:50", shape=shape)
    draft(one)
    block = one._sent[0]
    assert len(block.tokens) == 5
    shorter = replace(block, tokens=block.tokens[: accepted + 1])
    verdict = Verdict(accepted, 7)
    assert block.start.after(block, verdict) == block.start.after(shorter, verdict)


def test_a_block_of_large_distributions_fits_into_its_message() -> None:
    big = SpeculativeDrafting(
        plan(rule="rejection", codec="dense:fp32", shape={"length": 9}), 2**17
    )
    said_by_big = NextToken(np.full(2**17, 2.0**-17, np.float32), 0.0, np.zeros(1, np.float32))
    block = None
    while block is None:
        block = big.draft(said_by_big, math.inf).block
    assert block.count == 3
    assert len(block.payload) <= MAX_PAYLOAD


def test_codecs_without_a_lattice_send_no_resolution() -> None:
    one = drafting(codec="ids", shape={"controller": Asked()})
    assert draft(one).resolutions == ()


def test_the_baseline_drafts_from_what_the_model_said() -> None:
    """Tokens may then be none that the lattice gives mass, so they travel by id."""
    one = drafting(rule="sample-quantize", codec="ksqs:1:1", shape={"length": 8})
    block = draft(one)
    tokens, q = decode_block(one._codec, block.payload, block_steps(block.step, block.count))
    assert q is not None
    assert tokens == one.line.tokens
    assert any(each.probability(token) == 0 for each, token in zip(q, tokens, strict=True))


def test_alone_the_draft_model_decides() -> None:
    one = drafting()
    draft(one)
    one.rewind()
    tokens = []
    while one.finish is None:
        tokens += [each.token for each in one.decide_alone(said(one)).decided]
    assert len(tokens) == one.decided == 30
    assert draft_of(tokens[:3]) == tokens[:3]


def draft_of(tokens: list[int]) -> list[int]:
    """What coupled blocks draft, which is what the draft model says by itself."""
    one = drafting(shape={"length": len(tokens)})
    draft(one)
    return one.line.tokens


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        ({"length": 0}, "from 1 to 256 tokens"),
        ({"length": 257}, "from 1 to 256 tokens"),
        ({"budget": 0}, "at least 1"),
        ({"outstanding": 0}, "from 1 to 8 blocks"),
        ({"outstanding": 9}, "from 1 to 8 blocks"),
    ],
)
def test_shapes_out_of_range_are_refused(shape: dict[str, int], line: str) -> None:
    with pytest.raises(DragonError, match=line):
        BlockShape(**shape)  # type: ignore[arg-type]


def test_a_rule_that_needs_distributions_refuses_a_codec_without() -> None:
    with pytest.raises(DragonError, match="the codec ids sends none"):
        replace(plan(), rule="rejection").check()
