"""The cloud's machine of block modes: what may come, and what is answered to it."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from dragonrt.distributions import codec, encode_block
from dragonrt.errors import DragonError
from dragonrt.modes import verifier as verifying
from dragonrt.modes.messages import Block, Target, Verdict
from dragonrt.modes.mode import (
    Computed,
    Effects,
    Finish,
    Joined,
    Left,
    ModeError,
    Preempted,
    Prepared,
    Received,
    TimedOut,
    Work,
)
from dragonrt.modes.prefix import LOW_BITS, TokenPrefix, extend_hash, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.machine import SpeculativeJudging
from dragonrt.modes.speculative.settings import SpeculativeResources, SpeculativeSettings
from dragonrt.modes.verifier import INBOX, MAX_OUTSTANDING, BlockVerifier
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.scripted import Script, ScriptedModel, predictions_of
from dragonrt.timeouts import USUAL
from dragonrt.traces import events
from dragonrt.wire.reasons import End, Reason
from tests.modes.machines import wanted, work_off

V = 33
MODEL = ScriptedModel("cloud", Script(3, vocabulary=V))
RESOURCES = SpeculativeResources(vocabulary=V)
QUESTION = Question(seed=1, sampler=Sampler(0.8), max_tokens=12)
IDS = codec("ids", V)
COUPLED = SpeculativeSettings()
K_SQS = codec("ksqs:4:20", V).header
LATTICE = SpeculativeSettings(rule="rejection", codec="ksqs:4:20")


def block(number: int = 1, **fields: Any) -> Block:
    """A good first block of the session, but for the given fields."""
    start, payload = start_hash(QUESTION.seed) & LOW_BITS, encode_block(IDS, [5, 7], [])
    return structs.replace(Block(4, number, 0, start, 2, (), (), payload), **fields)


def verifier(
    settings: SpeculativeSettings = COUPLED,
    question: Question = QUESTION,
    *,
    ready: bool = True,
    decodes: bool = False,
) -> BlockVerifier:
    """One that has read the question at 0 s."""
    judging = SpeculativeJudging(question, replace(settings, cloud_decodes=decodes), RESOURCES)
    mode = BlockVerifier(judging, question, RESOURCES)
    mode.handle(Joined("device", 4), 0.0)
    if ready:
        mode.handle(Prepared(), 0.0)
    return mode


def verdicts(effects: Effects) -> list[Verdict]:
    for name, message in effects.send:
        assert name == "device"
        assert isinstance(message, Verdict)
    return [message for _, message in effects.send if isinstance(message, Verdict)]


def test_a_good_block_is_read_then_verified_in_one_forward() -> None:
    mode = verifier()
    assert mode.handle(Received("device", block()), 1.0) == Effects()
    reading = wanted(mode)
    assert (reading.span, reading.peer) == (None, "device")
    assert mode.wanted() is None
    mode.handle(Computed(reading, reading.postprocess(()), 0.0), 1.5)
    verifies = wanted(mode)
    assert verifies.span is not None
    assert (verifies.span.tokens, verifies.span.first) == ([5, 7], 0)
    said = [MODEL.predict(step, verifies.span.hashes[step]) for step in range(3)]
    effects = mode.handle(Computed(verifies, verifies.postprocess(said), 0.02), 2.0)
    (verdict,) = verdicts(effects)
    assert (verdict.session, verdict.round, verdict.verify_us) == (4, 1, 20000)
    assert [*[5, 7][: verdict.accepted], verdict.token] == mode.decided
    forward, judged = effects.events
    assert forward == events.ForwardDone(0, 3, 0.02)
    assert judged == events.BlockJudged(1, 2, verdict.accepted, verdict.token, 0.5, 0.02)
    assert mode.wanted() is None


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        (COUPLED, {"payload": IDS.header}),
        (COUPLED, {"payload": IDS.header + b"\xff\xff"}),
        (LATTICE, {"payload": K_SQS + bytes(40), "resolutions": (2**20,)}),
        (LATTICE, {"payload": K_SQS + bytes(2**15)}),
    ],
)
def test_a_payload_that_cannot_be_read_is_the_devices_fault(
    settings: SpeculativeSettings, fields: dict[str, Any]
) -> None:
    mode = verifier(settings)
    mode.handle(Received("device", block(**fields)), 0.0)
    reading = wanted(mode)
    assert reading.peer == "device"
    with pytest.raises(DragonError):
        reading.postprocess(())


def test_more_blocks_than_may_be_under_way_are_refused() -> None:
    mode = verifier(ready=False)
    for number in range(1, INBOX + 1):
        mode.handle(Received("device", block(number)), 0.0)
    with pytest.raises(ModeError):
        mode.handle(Received("device", block(INBOX + 1)), 0.0)


def test_a_block_that_takes_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "LARGEST_READING", 3 * 256 * V)
    many = verifier(question=replace(QUESTION, documents=256))
    many.handle(Received("device", block()), 0.0)
    three = block(2, count=3, payload=encode_block(IDS, [5, 7, 9], []))
    with pytest.raises(ModeError):
        many.handle(Received("device", three), 0.0)


def test_blocks_of_another_text_are_dropped_but_not_for_ever() -> None:
    for last, answered in ((block(MAX_OUTSTANDING), True), (None, False)):
        mode = verifier()
        for number in range(1, MAX_OUTSTANDING):
            assert mode.handle(Received("device", block(number, prefix_hash=7)), 0.0) == Effects()
            assert mode.wanted() is None
        dead = block(MAX_OUTSTANDING, step=1, decided=(3,))
        effects = mode.handle(Received("device", last or dead), 0.0)
        if answered:
            assert effects.leave == []
            assert len(verdicts(work_off(mode, MODEL))) == 1
            again = mode.handle(Received("device", block(MAX_OUTSTANDING + 1, prefix_hash=7)), 0.0)
            assert again.leave == [], "they are counted in a row"
        else:
            (leave,) = effects.leave
            assert leave.end.reason is Reason.PROTOCOL


def test_decided_tokens_bring_the_text_where_the_block_begins() -> None:
    follows = extend_hash(start_hash(QUESTION.seed), 9) & LOW_BITS
    mode, found = verifier(), []
    for number in (1, 2):
        mode.handle(
            Received("device", block(number, step=1, decided=(9,), prefix_hash=follows)),
            float(number),
        )
        found += verdicts(work_off(mode, MODEL))
    assert [verdict.round for verdict in found] == [1, 2]
    assert len({(verdict.accepted, verdict.token) for verdict in found}) == 1
    assert mode.decided[0] == 9


def test_a_session_in_which_nothing_comes_is_closed() -> None:
    mode = verifier()
    assert mode.deadline() == USUAL.idle_s
    mode.handle(Received("device", block()), 10.0)
    assert mode.deadline() is None
    work_off(mode, MODEL, 11.0)
    assert mode.deadline() == 11.0 + USUAL.idle_s
    assert mode.handle(TimedOut(), 310.0) == Effects()
    (leave,) = mode.handle(TimedOut(), 311.0).leave
    assert (leave.peer, leave.end.reason) == ("device", Reason.MUTE)


def test_why_a_session_ended_is_what_the_text_says() -> None:
    for accepted, stop_tokens, finish in (
        ((), (), Finish.CANCELLED),
        ((5, 7), (7,), Finish.STOP),
        ((5,) * 12, (), Finish.LENGTH),
    ):
        question = replace(QUESTION, accepted=accepted, stop_tokens=stop_tokens)
        effects = verifier(question=question).handle(
            Left("device", End(Reason.FINISHED, ""), False), 0.0
        )
        assert (effects.finished, effects.preempt) == (finish, True)


def test_a_dropped_block_makes_room_for_the_next() -> None:
    mode = verifier()
    mode.handle(Received("device", block(1)), 0.0)
    mode.handle(Received("device", block(2)), 0.0)
    work = wanted(mode)
    mode.handle(Preempted(work, 0.0), 0.0)
    assert [verdict.round for verdict in verdicts(work_off(mode, MODEL))] == [2]


# Where the cloud decodes by itself.


def computed(mode: BlockVerifier, work: Work) -> Effects:
    return mode.handle(Computed(work, work.postprocess(predictions_of(MODEL, work)), 0.02), 1.0)


def worked(mode: BlockVerifier) -> tuple[Work, Effects]:
    """One forward that it wants, done."""
    work = wanted(mode)
    return work, computed(mode, work)


def decoding(count: int, question: Question = QUESTION) -> BlockVerifier:
    """One that has decoded so many tokens by itself."""
    mode = verifier(question=question, decodes=True)
    for _ in range(count):
        worked(mode)
    return mode


def targets(count: int) -> list[int]:
    """The cloud's text."""
    return list(decoding(count).decided)


def drafted(number: int, step: int, tokens: list[int]) -> Block:
    """A block behind the cloud's text of `step` tokens."""
    prefix_hash = TokenPrefix(start_hash(QUESTION.seed), targets(step)).hash & LOW_BITS
    payload = encode_block(IDS, tokens, [])
    count = len(tokens)
    return block(number, step=step, prefix_hash=prefix_hash, count=count, payload=payload)


def other(token: int) -> int:
    return (token + 1) % V


def test_while_no_block_waits_it_decodes_to_the_end_by_itself() -> None:
    mode, told = verifier(decodes=True), []
    assert verifier(decodes=True, ready=False).wanted() is None
    for step in range(QUESTION.max_tokens):
        work, effects = worked(mode)
        assert work.span is not None
        assert (work.span.first, len(work.span.tokens)) == (step, step)
        ((_, target),) = effects.send
        assert isinstance(target, Target)
        assert (target.session, target.step) == (4, step)
        assert target.prefix_hash == work.span.hashes[-1]
        assert effects.events == [
            events.ForwardDone(step, 1, 0.02),
            events.TargetDecoded(step, target.token),
        ]
        told.append(target.token)
    assert mode.decided == told
    assert mode.wanted() is None


@pytest.mark.parametrize("wrong", [99, 4])
def test_it_reads_along_what_its_documents_say_next(wrong: int) -> None:
    """The text stays the same; from a token that its documents have `wrong` on, it finds none."""
    right, told, forwards = targets(12), list[int](), 0
    mode = verifier(replace(COUPLED, draft="lookup"), decodes=True, ready=False)
    mode.handle(Prepared(texts=(right[:wrong], [*right[:wrong], other(right[-1])])), 0.0)
    while len(mode.decided) < len(right):
        _, effects = worked(mode)
        told += [message.token for _, message in effects.send if isinstance(message, Target)]
        forwards += 1
    assert list(mode.decided) == told == right
    assert forwards < (7 if wrong > 12 else 12)


def test_it_does_not_decode_behind_a_stop_token() -> None:
    stop = targets(3)[2]
    count = 1 + targets(3).index(stop)
    assert decoding(count, replace(QUESTION, stop_tokens=(stop,))).wanted() is None


def test_it_does_not_decode_behind_a_stop_token_of_a_block() -> None:
    """Its verdict gives one token more, which is not the answer's."""
    right = targets(3)
    stop = replace(QUESTION, stop_tokens=(right[2],))
    mode = verifier(question=stop, decodes=True)
    mode.handle(Received("device", drafted(1, 0, right)), 0.0)
    first, effects = worked(mode)  # it needs no forward, so the block waits for it
    assert first.span is not None
    assert [type(message) for _, message in effects.send] == [Target]
    _, effects = worked(mode)
    (verdict,) = verdicts(effects)
    assert verdict.accepted == 3
    assert len(mode.decided) == 4
    assert mode.wanted() is None


def test_a_block_waits_for_the_running_forward() -> None:
    right = targets(4)
    for last, judged in ((right[2], [(3, right[3])]), (other(right[2]), [])):
        mode = decoding(2)
        work = wanted(mode)
        effects = mode.handle(Received("device", drafted(1, 0, [*right[:2], last])), 1.0)
        assert effects == Effects()
        effects = computed(mode, work)
        assert isinstance(effects.send[0][1], Target)
        work, effects = worked(mode)
        assert work.span is not None
        assert work.span.first == 3
        found = [each for _, each in effects.send if isinstance(each, Verdict)]
        assert [(verdict.accepted, verdict.token) for verdict in found] == judged


def test_a_block_of_known_tokens_needs_no_forward() -> None:
    right = targets(4)
    mode = decoding(4)
    work = wanted(mode)
    effects = mode.handle(Received("device", drafted(1, 1, right[1:3])), 1.0)
    assert not effects.preempt
    (verdict,) = verdicts(effects)
    assert (verdict.accepted, verdict.token, verdict.verify_us) == (2, right[3], 0)
    assert list(mode.decided) == right
    computed(mode, work)
    assert len(mode.decided) == 5


def test_a_block_that_contradicts_the_text_is_dropped() -> None:
    right = targets(3)
    mode = decoding(2)
    assert mode.wanted() is not None
    effects = mode.handle(Received("device", drafted(1, 0, [right[0], other(right[1])])), 1.0)
    assert (effects.preempt, effects.send) == (False, [])
    assert effects.events == [events.BlockJudged(1, 2, 1, right[1], 0.0, 0.0)]
    assert list(mode.decided) == right[:2]


def test_dead_blocks_neither_fill_the_inbox_nor_end_the_session() -> None:
    """Each token of the cloud makes the device draft anew: such blocks may be many at once."""
    right = targets(1)
    mode = verifier(decodes=True, ready=False)
    for number in range(1, 4 * INBOX):
        step = 1 - number % 2
        prefix_hash = TokenPrefix(start_hash(QUESTION.seed), right[:step]).hash & LOW_BITS
        ahead = block(number, step=step, prefix_hash=prefix_hash)
        assert mode.handle(Received("device", ahead), 0.0) == Effects()
    mode.handle(Prepared(), 0.0)
    for number in range(4 * INBOX, 8 * INBOX):
        assert mode.handle(Received("device", block(number, prefix_hash=7)), 0.0).leave == []
