"""Bad messages of every type, in the middle of an honest session.

Whatever comes, that session ends with a reason, its answer goes on without the other side, and a
neighbour on the same connection hears nothing of it.
"""

import asyncio
import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dragonrt.distributions import Step, codec
from dragonrt.modes import entry_of
from dragonrt.modes.blocks import ReadBlock, Uploads
from dragonrt.modes.dragon.drafts import Coefficients, Draft
from dragonrt.modes.dragon.machine import Dragon
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.federated.workers import FederatedJudging
from dragonrt.modes.messages import Block, Target, Upload, Verdict
from dragonrt.modes.mode import Prediction, Work
from dragonrt.modes.prefix import LOW_BITS, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.node.connections.peer import Peer
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.privacy.evidence import SideDraft
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import SIDES, Side
from dragonrt.testing.loop import run
from dragonrt.testing.scripted import Script, SimulatedContext
from dragonrt.timeouts import USUAL
from dragonrt.traces.events import NoticeKind
from dragonrt.wire import messages as wire
from dragonrt.wire.encoding import encode, encode_frame
from dragonrt.wire.fields import pack
from dragonrt.wire.reasons import End, Reason
from scripts.campaign.exploration import Observed, Stage, observe
from scripts.campaign.scenario import FOR_EVER_S, ModelStall, Request, Scenario
from tests.contract.scenes import delay_postprocessing, together
from tests.silent_session import SilentSession

TOKENS = 20
QUESTION = Question(prompt="0", seed=7, sampler=Sampler(0.8), max_tokens=TOKENS, reweight_every=1)
MODES: dict[str, Settings] = {
    "dragon": DragonSettings(codec="topp:0.95", run_ahead=4),
    "dense dragon": DragonSettings(codec="dense:fp16", run_ahead=4),
    "answer": DragonSettings(codec="topp:0.95", run_ahead=4, disclose=Disclosure.ANSWER),
    "speculative": SpeculativeSettings(rule="rejection", codec="ksqs:6:40", block_tokens=3),
    "decoding": SpeculativeSettings(block_tokens=3),
    "federated": FederatedSettings(codec="topk:4:residual", block_tokens=3),
    "sprinter": SprinterSettings(codec="topk:8:renorm", threshold=1.0),
}
ONE_OF_EACH = ("dragon", "speculative", "federated", "sprinter")
MOMENT_S = 0.2
"""By then both answers are under way."""

START = start_hash(QUESTION.seed)


def scenario(settings: Settings) -> Scenario:
    """The answer whose session is disturbed, and its neighbour on the same connection."""
    requests = (
        Request(
            replace(QUESTION, seed=7 + number),
            settings,
            Script(number, 16, disagreement=0.8, stop=0.0),
            start_s=0.001 * number,
        )
        for number in range(2)
    )
    return together(*requests)


@functools.cache
def neighbours_text(mode: str) -> list[int]:
    """What the neighbour says where nothing is disturbed."""
    return run(observe(scenario(MODES[mode])))[1].answer.tokens


def inject(*messages: wire.Message, to: Side) -> Callable[[Stage], Any]:
    """Say these on the first session, whose number is 1, past all that an honest side checks."""

    async def disturb(stage: Stage) -> None:
        await asyncio.sleep(MOMENT_S)
        if to == "device":
            cloud = next(iter(stage.clouds.values()))
            peer = next(iter(cloud._connections.values()))
        else:
            peer = open_peer(stage)
        for message in messages:
            if isinstance(message, wire.Close):
                session: Any = peer._sessions.get(1)
                if session is not None:
                    session.fail(End(message.reason, message.text))
            else:
                peer._stream.write(encode_frame(encode(message)))

    return disturb


def open_peer(stage: Stage) -> Peer:
    """The device's end of its connection to the first cloud."""
    peer = next(iter(stage.devices[0].connectors.values())).peer
    assert peer is not None
    return peer


def draft(**changes: Any) -> Draft:
    fields = Draft(1, 0, START, 5, 0.0, 1000, 0, START & LOW_BITS, b"\xff")
    return structs.replace(fields, **changes)


def block(**changes: Any) -> Block:
    fields = Block(1, 9999, 0, START & LOW_BITS, 1, (), (), b"\xff" * 9)
    return structs.replace(fields, **changes)


TARGET = Target(1, 3, 7, 5, "device")
VERDICT = Verdict(1, 9999, 1, 5, 0)
UPLOAD = Upload(1, 9999, 0.0, 0, (b"\xff",))
COEFFICIENTS = Coefficients(1, -1e9, 1.0, 1e9)
OPENED = wire.Opened(1, 4, 0, 0)


def again(settings: Settings) -> wire.Open:
    return wire.Open(1, entry_of(settings).name, pack(QUESTION), pack(settings))


@dataclass(frozen=True, slots=True)
class Bad:
    """A message, to whom it is bad, and why the session ends."""

    mode: str
    to: Side
    message: wire.SessionMessage
    reason: Reason


def bad(
    modes: Sequence[str], sides: Sequence[Side], *messages: Any, reason: Reason = Reason.PROTOCOL
) -> list[Bad]:
    """These messages to these sides in these modes; a function makes one of the mode's settings."""
    return [
        Bad(mode, to, each(MODES[mode]) if callable(each) else each, reason)
        for mode in modes
        for to in sides
        for each in messages
    ]


BLOCKS, VERDICTS = ("speculative", "federated", "sprinter"), ("speculative", "sprinter")
DEVICE: tuple[Side, ...] = ("device",)
CLOUD: tuple[Side, ...] = ("cloud",)
BAD = [
    *bad(ONE_OF_EACH, SIDES, OPENED, again, reason=Reason.OUT_OF_ORDER),
    *bad(ONE_OF_EACH, DEVICE, wire.Close(1, Reason.ERROR, "it is over"), reason=Reason.ERROR),
    # Dragon: drafts and targets, alike in both directions.
    *bad(("dragon",), SIDES, draft(step=4000), TARGET, block(), VERDICT, UPLOAD),
    # The same where the device keeps its drafts: nobody may ask for more, or tell it.
    *bad(("answer",), DEVICE, TARGET, block(), VERDICT, UPLOAD, COEFFICIENTS),
    *bad(("answer",), CLOUD, draft(), block(), VERDICT, UPLOAD, COEFFICIENTS),
    # Blocks, one way.
    *bad(BLOCKS, CLOUD, draft(), TARGET, COEFFICIENTS, VERDICT, UPLOAD),
    *bad(BLOCKS, CLOUD, block(round=0), block(step=TOKENS), block()),
    *bad(("sprinter",), CLOUD, block(count=2)),
    *bad(("speculative",), CLOUD, block(count=200)),
    # Their answers, the other way.
    *bad(BLOCKS, DEVICE, draft(), TARGET, COEFFICIENTS, block()),
    *bad(VERDICTS, DEVICE, VERDICT, UPLOAD),
    *bad(("federated",), DEVICE, UPLOAD, VERDICT),
    # Where the cloud decides tokens without a block, too.
    *bad(("decoding",), SIDES, TARGET),
    *bad(("decoding",), CLOUD, block(decided=(5,), step=1), block()),
    # Tokens outside the vocabulary: the connection refuses these messages.
    *bad(("dragon",), SIDES, draft(token=16), reason=Reason.MALFORMED),
    *bad(BLOCKS, CLOUD, block(decided=(16,), step=1), reason=Reason.MALFORMED),
    *bad(BLOCKS, DEVICE, structs.replace(TARGET, token=16), reason=Reason.MALFORMED),
    *bad(VERDICTS, DEVICE, structs.replace(VERDICT, token=16), reason=Reason.MALFORMED),
]


@pytest.mark.parametrize(
    "case", BAD, ids=lambda case: f"{case.mode}, {type(case.message).__name__} to the {case.to}"
)
def test_a_bad_message_ends_its_session_alone(case: Bad) -> None:
    scene = scenario(MODES[case.mode])
    victim, neighbour = run(observe(scene, inject(case.message, to=case.to)))
    assert_left_alone(victim, case.reason)
    assert neighbour.answer.tokens == neighbours_text(case.mode)
    assert not neighbour.answer.notices


def assert_left_alone(victim: Observed, reason: Reason) -> None:
    """It has lost its other side, knows why, and has answered all the same."""
    assert len(victim.answer.tokens) == TOKENS
    (notice,) = victim.answer.notices
    assert notice.kind in (NoticeKind.ALONE, NoticeKind.ABSENT)
    assert notice.reason is reason


@pytest.mark.parametrize("mode", ["dragon", "speculative", "sprinter"])
def test_who_is_refused_before_the_answer_is_opened_goes_alone(mode: str) -> None:
    scene = scenario(MODES[mode])
    (links,) = scene.schedules
    slow = replace(scene, schedules=(tuple(replace(link, cloud_prepare_s=1.0) for link in links),))
    refusal = wire.Close(1, Reason.UNSUPPORTED, "not today")
    victim, neighbour = run(observe(slow, inject(refusal, to="device")))
    assert_left_alone(victim, Reason.UNSUPPORTED)
    assert victim.device is not None
    assert victim.device.changes == [(0, True)]
    assert not neighbour.answer.notices


def test_drafts_that_lead_nowhere_do_not_keep_a_device_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cloud's model does nothing, and drafts for other texts come again and again."""
    right = SimulatedContext.start

    def start(context: SimulatedContext, work: Work, done: Callable[..., None]) -> None:
        model: Any = context._model
        if model.side == "device":
            right(context, work, done)

    monkeypatch.setattr(SimulatedContext, "start", start)
    code = codec("topp:0.95", 16)
    readable = code.encode(code.quantize(np.full(16, 1 / 16), Step(0)))

    async def disturb(stage: Stage) -> None:
        stage.fault(USUAL.mute_s)
        await asyncio.sleep(MOMENT_S)
        for n in range(20):
            peer = next(iter(next(iter(stage.clouds.values()))._connections.values()))
            peer._stream.write(encode_frame(encode(draft(prefix_hash=n, payload=readable))))
            await asyncio.sleep(0.5)

    scene = scenario(MODES["dragon"])
    stall = ModelStall("cloud", 0, FOR_EVER_S)  # as the bounds of liveness have it
    (found,) = run(observe(replace(scene, requests=scene.requests[:1], stall=stall), disturb))
    assert found.ended_s < 2 * USUAL.mute_s
    assert found.answer.notices[-1].reason is Reason.MUTE


@pytest.mark.parametrize("mode", ["dragon", "dense dragon"])
def test_a_draft_that_cannot_be_read_ends_its_session(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where light payloads are read on arrival, and where postprocessing reads them."""
    expected, right = neighbours_text(mode), Dragon._send_draft

    def send_draft(dragon: Dragon, draft: SideDraft, now: float) -> None:
        victim = (dragon.side, dragon._setup.question.seed) == ("cloud", QUESTION.seed)
        broken = victim and draft.step == 8
        right(dragon, replace(draft, payload=b"\xff") if broken else draft, now)

    monkeypatch.setattr(Dragon, "_send_draft", send_draft)
    victim, neighbour = run(observe(scenario(MODES[mode]), inject(to="device")))
    assert_left_alone(victim, Reason.PROTOCOL)
    assert neighbour.answer.tokens == expected
    assert not neighbour.answer.notices


@pytest.mark.parametrize("payloads", ["too few", "unreadable"])
def test_an_upload_that_cannot_be_read_costs_one_worker(
    payloads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go on, with their weights renormalised: `observe` holds them to it."""
    right, first = FederatedJudging.answer, []

    def answer(judging: FederatedJudging, block: ReadBlock, said: Sequence[Prediction]) -> Uploads:
        first.append(judging)
        uploads = right(judging, block, said)
        if judging is not first[0] or first.count(judging) != 3:
            return uploads
        if payloads == "too few":
            return replace(uploads, payloads=uploads.payloads[1:])
        return replace(uploads, payloads=(b"\xff" * 9,) * len(uploads.payloads))

    monkeypatch.setattr(FederatedJudging, "answer", answer)
    scene = scenario(MODES["federated"])
    alone = replace(scene, requests=scene.requests[:1])
    (found,) = run(observe(alone, inject(to="device")))
    assert len(found.answer.tokens) == TOKENS
    (notice,) = found.answer.notices
    assert (notice.kind, notice.reason) == (NoticeKind.ABSENT, Reason.PROTOCOL)
    assert found.device is not None
    missing = [len(each.missing) for each in found.device.rounds]
    assert missing == [0, 0, *[1] * (len(missing) - 2)]


def nonsense(chance: random.Random) -> wire.Message:
    """Well-formed, and mostly meaningless."""
    step, token, payload = chance.randrange(40), chance.randrange(16), chance.randbytes(9)
    prefix = START if chance.random() < 0.5 else chance.getrandbits(64)
    number = chance.randrange(12)
    session = 1 if chance.random() < 0.9 else chance.randrange(20, 24)
    kinds: list[wire.Message] = [
        draft(session=session, step=step, prefix_hash=prefix, token=token, payload=payload),
        draft(relevance=chance.choice([1e308, -1e308]), decode_us=2**62, payload=payload),
        draft(session=session, step=step, time_us=2**62, echo_us=2**62, payload=payload),
        structs.replace(TARGET, session=session, step=step, prefix_hash=prefix, token=token),
        block(step=min(step, TOKENS), round=number, prefix_hash=prefix & LOW_BITS, payload=payload),
        structs.replace(VERDICT, round=number, accepted=chance.randrange(4), token=token),
        structs.replace(UPLOAD, round=number, payloads=(payload,) * chance.randrange(5)),
        structs.replace(OPENED, session=session),
        structs.replace(COEFFICIENTS, session=session),
        wire.Close(1, chance.choice(list(Reason)), "so"),
        wire.Ping(chance.getrandbits(32), chance.getrandbits(62), payload),
        wire.Pong(chance.randrange(4), chance.getrandbits(62), chance.getrandbits(32)),
    ]
    return chance.choice(kinds)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [*ONE_OF_EACH, "decoding"])
def test_any_message_ends_its_own_answer_at_most(mode: str) -> None:
    """What makes sense by chance may change the victim's text: only that it ends counts."""
    scene = scenario(MODES[mode])
    for seed in range(10):
        chance = random.Random(seed)
        to: Side = chance.choice(("device", "cloud"))
        messages = [nonsense(chance) for _ in range(chance.randrange(1, 6))]
        ended = run(ends(scene, inject(*messages, to=to)))
        assert ended[0].answer.finish.value == "length"
        assert ended[1].answer.tokens == neighbours_text(mode)


async def ends(scene: Scenario, disturb: Callable[[Stage], Any]) -> list[Observed]:
    """The answers, whatever the victim's text has become."""
    stage = Stage(scene, disturb)
    return await stage.unchecked()


@pytest.mark.slow
def test_many_sessions_leave_nothing_behind() -> None:
    """Good ones, cancelled ones, stopped ones, and blocks that no codec wrote, in every mode."""
    drawn = random.Random(11)
    for mode in ONE_OF_EACH:
        settings = MODES[mode]
        scene = scenario(settings)
        first = scene.requests[0]
        requests = tuple(
            replace(
                first,
                question=replace(first.question, seed=number, prompt=str(number), max_tokens=6),
                start_s=0.5 * (number // 20),
                end_s=drawn.choice((None, drawn.uniform(0.0, 0.4))),
                stops=drawn.random() < 0.5,
            )
            for number in range(40)
        )

        run(observe(replace(scene, requests=requests), garbage(settings, drawn)))


def test_an_ended_session_does_not_end_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cloud still reads a block of the one, which is closed, when the other is asked for."""
    settings = MODES["speculative"]
    scene = scenario(settings)
    delay_postprocessing(monkeypatch, 1, until_s=1.0)
    asked = tuple(replace(each, start_s=5.0) for each in scene.requests)

    async def disturb(stage: Stage) -> None:
        await asyncio.sleep(0.1)
        peer = open_peer(stage)
        strange = replace(QUESTION, prompt="1")
        number = 1  # as the first session's will be
        peer.open(SilentSession(), wire.Open(number, "speculative", pack(strange), pack(settings)))
        peer.send(block(session=number, round=1))
        await asyncio.sleep(4.8)
        peer.close(number, End(Reason.CANCELLED, ""))

    for found in run(observe(replace(scene, requests=asked), disturb)):
        assert not found.answer.notices


def garbage(settings: Settings, drawn: random.Random) -> Callable[[Stage], Any]:
    """Strangers who ask, and send blocks that no codec wrote."""

    async def disturb(stage: Stage) -> None:
        for _ in range(12):
            await asyncio.sleep(0.05)
            peer, stranger = open_peer(stage), SilentSession()
            number = peer.next_number()
            peer.open(stranger, structs.replace(again(settings), session=number))
            payload = drawn.randbytes(drawn.randrange(9))
            peer.send(block(session=number, round=1, payload=payload))
            peer.send(block(session=number, round=1, payload=payload))  # its round came before
            await stranger.ended.wait()

    return disturb
