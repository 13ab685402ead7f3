"""The device's machine of block modes: blocks out, verdicts in, and the cloud that goes away."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from dragonrt.control.trained import Action, Static
from dragonrt.modes.drafter import BlockDrafter
from dragonrt.modes.messages import Block, Target, Verdict
from dragonrt.modes.mode import (
    Computed,
    Effects,
    Finish,
    Joined,
    Left,
    Measured,
    ModeError,
    OnLoss,
    Preempted,
    Prepared,
    Received,
    TimedOut,
    Work,
)
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.machine import SpeculativeDrafting
from dragonrt.modes.speculative.settings import SpeculativeResources, SpeculativeSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.scripted import Script, ScriptedModel, predictions_of
from dragonrt.timeouts import USUAL
from dragonrt.traces import events
from dragonrt.wire.reasons import End, Reason
from tests.modes.machines import of, wanted

V = 33
MODEL = ScriptedModel("device", Script(3, vocabulary=V))
RESOURCES = SpeculativeResources(vocabulary=V)
QUESTION = Question(seed=1, sampler=Sampler(0.8), max_tokens=12)
WAITING = SpeculativeSettings(block_tokens=2, pipelined=False)
PIPELINED = SpeculativeSettings(block_tokens=2)


def drafter(
    settings: SpeculativeSettings = PIPELINED, on_loss: OnLoss = "alone", *, joined: bool = True
) -> BlockDrafter:
    """One that has read the question at 0 s, with a cloud as session 8."""
    settings = replace(settings, on_loss=on_loss)
    one = BlockDrafter(SpeculativeDrafting(QUESTION, settings, RESOURCES), settings, RESOURCES)
    if joined:
        one.handle(Joined("cloud", 8), 0.0)
        one.handle(Prepared(), 0.0)
    return one


def read(mode: BlockDrafter, work: Work, now: float = 0.0) -> Effects:
    """What a forward of 10 ms gives."""
    return mode.handle(Computed(work, work.postprocess(predictions_of(MODEL, work)), 0.01), now)


def draft(mode: BlockDrafter, blocks: int = 1, now: float = 0.0) -> list[Block]:
    """Draft until so many blocks are out."""
    sent: list[Block] = []
    while len(sent) < blocks:
        work = wanted(mode)
        assert mode.wanted() is None, "one forward at a time"
        for name, message in read(mode, work, now).send:
            assert name == "cloud"
            assert isinstance(message, Block)
            sent.append(message)
    return sent


def verdict(number: int, accepted: int = 1, token: int = 3) -> Verdict:
    return Verdict(8, number, accepted, token, 500)


def test_a_block_is_told_with_what_it_took() -> None:
    mode = drafter(WAITING)
    first = wanted(mode)
    done = of(read(mode, first), events.ForwardDone)
    assert done == [events.ForwardDone(0, 1, 0.01)]
    second = wanted(mode)
    effects = read(mode, second, 1.0)
    (sent,) = of(effects, events.BlockSent)
    assert (sent.round, sent.step, sent.tokens, sent.seconds) == (1, 0, 2, 0.02)
    ((_, block),) = effects.send
    assert isinstance(block, Block)
    assert (block.session, block.round, block.count) == (8, 1, 2)
    assert mode.wanted() is None, "a verdict is due"
    effects = mode.handle(Received("cloud", verdict(1, 1, 3)), 1.5)
    assert of(effects, events.BlockJudged) == [events.BlockJudged(1, 2, 1, 3, 0.5, 0.0005)]
    first_token, corrected = of(effects, events.TokenDecided)
    assert (first_token.device, first_token.waited, first_token.share) == (True, 0.5, 1.0)
    assert (corrected.device, corrected.waited, corrected.share) == (False, 0.0, 0.0)
    assert list(mode.decided) == [first_token.token, 3]
    assert mode.wanted() is not None


def test_a_verdict_accepts_no_more_than_was_drafted() -> None:
    mode = drafter()
    draft(mode)
    with pytest.raises(ModeError):
        mode.handle(Received("cloud", verdict(1, accepted=3)), 0.0)
    assert list(mode.decided) == []


def test_answers_to_blocks_that_were_given_up_pass_once() -> None:
    mode = drafter()
    draft(mode, 3)
    mode.handle(Received("cloud", verdict(1, 0, (mode._drafting.prefix.tokens[0] + 1) % V)), 0.0)
    decided = list(mode.decided)
    mode.handle(Received("cloud", verdict(2)), 0.0)  # it was drafted on a wrong guess
    assert list(mode.decided) == decided
    with pytest.raises(ModeError):
        mode.handle(Received("cloud", verdict(2)), 0.0)
    (block,) = draft(mode)
    assert block.round == 4
    mode.handle(Received("cloud", verdict(4)), 0.0)
    with pytest.raises(ModeError):  # it is older than one that was answered
        mode.handle(Received("cloud", verdict(3)), 0.0)


def test_a_verdict_against_the_line_stops_the_forward_once() -> None:
    mode = drafter()
    draft(mode, 2)
    work = wanted(mode)
    wrong = (mode._drafting.prefix.tokens[0] + 1) % V
    effects = mode.handle(Received("cloud", verdict(1, 0, wrong)), 0.0)
    assert effects.preempt
    assert len(of(effects, events.ForwardPreempted)) == 1
    assert mode.wanted() is None, "it still runs"
    line = list(mode._drafting.prefix.tokens)
    late = read(mode, work)  # it was too late to stop it: what it gives is dropped
    assert (late.send, of(late, events.TokenDecided)) == ([], [])
    assert mode._drafting.prefix.tokens == line
    again = wanted(mode)
    stopped = mode.handle(Preempted(again, 0.004), 0.0)
    assert of(stopped, events.ForwardStopped) == [events.ForwardStopped(1, 0.004)]
    assert mode.wanted() is not None


def test_alone_the_draft_model_goes_on_to_the_end() -> None:
    mode = drafter(WAITING)
    draft(mode)
    assert (
        of(mode.handle(Left("cloud", End(Reason.LOST, "gone"), True), 1.0), events.WentAlone) == []
    )
    assert mode.wanted() is None, "it may come back at once"
    assert mode.deadline() == 1.0 + USUAL.rejoin_s
    effects = mode.handle(TimedOut(), 1.0 + USUAL.rejoin_s)
    assert of(effects, events.WentAlone) == [events.WentAlone(0)]
    last = Effects()
    while (work := mode.wanted()) is not None:
        last = read(mode, work, 2.0)
        assert last.send == []
        (decided,) = of(last, events.TokenDecided)
        assert (decided.device, decided.cause, decided.share) == (None, "own", 1.0)
    assert (last.finished, last.preempt) == (Finish.LENGTH, True)
    assert len(mode.decided) == 12
    assert mode.deadline() is None


def test_a_cloud_that_is_back_in_time_is_not_given_up() -> None:
    mode = drafter(WAITING)
    draft(mode)
    mode.handle(Left("cloud", End(Reason.LOST, "gone"), True), 1.0)
    mode.handle(Joined("cloud", 9), 2.0)
    effects = mode.handle(TimedOut(), 1.0 + USUAL.rejoin_s)
    assert of(effects, events.WentAlone) == []
    (block,) = draft(mode)
    assert (block.session, block.round) == (9, 1)


def test_a_new_session_keeps_all_of_its_blocks() -> None:
    mode = drafter()
    draft(mode, 3)
    wrong = V - 1  # nobody drafts it
    mode.handle(Received("cloud", verdict(1, 0, wrong)), 0.0)
    mode.handle(Left("cloud", End(Reason.LOST, "gone"), True), 1.0)
    mode.handle(Joined("cloud", 9), 2.0)
    draft(mode, 2)
    mode.handle(Received("cloud", verdict(1, 0, wrong)), 2.0)
    assert [block.round for block in draft(mode)] == [3], "the second has a wrong guess"
    decided: list[int] = []
    for number in (2, 3):
        mode.handle(Received("cloud", verdict(number, 0, wrong)), 2.0)
        decided.append(len(mode.decided))
    assert decided == [2, 3]


def test_the_controller_is_given_the_known_or_the_measured_rate() -> None:
    class Rates(SpeculativeDrafting):
        def __init__(self, resources: SpeculativeResources) -> None:
            super().__init__(QUESTION, WAITING, resources)
            self.rates: list[float] = []

        @override
        def postprocess(self, rate: float) -> Any:
            self.rates.append(rate)
            return super().postprocess(rate)

    resources = replace(RESOURCES, controller=Static(Action(2, 1)))
    measured, known = Rates(resources), Rates(replace(resources, rate=lambda at: 1e3 + at))
    mode, other = (BlockDrafter(each, WAITING, resources) for each in (measured, known))
    assert (mode.times_bandwidth, other.times_bandwidth) == (True, False)
    for each in (mode, other):
        each.handle(Joined("cloud", 8), 0.0)
        each.handle(Prepared(), 0.0)
        work = wanted(each)
        each.handle(Measured("cloud", 0.1, 5e4), 0.0)
        read(each, work, 7.0)
        each.wanted()
    assert measured.rates == [np.inf, 5e4]
    assert known.rates == [1e3, 1e3 + 7.0]


def test_an_unverified_block_keeps_the_tokens_of_the_cloud() -> None:
    """It decodes by itself, and may be at the end, or gone, before a block reaches it."""
    for last, stand in ((False, 1), (True, 2)):
        mode = drafter()
        draft(mode, 3)
        line = mode._drafting.prefix
        for step in range(1 + last):
            target = Target(8, step, line.hashes[step], line.tokens[step], "cloud")
            effects = mode.handle(Received("cloud", target), 0.0)
            assert of(effects, events.TargetDecoded) == [events.TargetDecoded(step, target.token)]
            (decided,) = of(effects, events.TokenDecided)
            assert (decided.device, decided.cause) == (True, "target")
        lost = mode.handle(Left("cloud", End(Reason.LOST, "gone"), False), 1.0)
        assert of(lost, events.BlockOutrun) == [events.BlockOutrun(1, stand)]
        assert len(mode.decided) == stand


def test_tokens_decided_during_prefill_count_no_waiting() -> None:
    mode = drafter(joined=False)
    mode.handle(Joined("cloud", 8), 1000.0)
    line, found = mode._drafting.prefix, []
    for step, now in enumerate((1000.5, 1001.0, 1002.5)):
        if step == 2:
            assert mode.handle(Prepared(), 1002.0) == Effects()
        effects = mode.handle(Received("cloud", Target(8, step, line.hash, 5, "cloud")), now)
        found += [each.waited for each in of(effects, events.TokenDecided)]
    assert found == [0.0, 0.0, 0.5]
    assert list(mode.decided) == [5, 5, 5]
