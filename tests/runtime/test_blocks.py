"""Sessions of blocks with sides that do not behave: each ends with its reason, and nothing else."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dragonrt.distributions import codec, encode_block
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.models import LinkModel
from dragonrt.runtime.draft import extend_hash, start_hash
from dragonrt.runtime.modes import serving
from dragonrt.runtime.modes.blocks import (
    MAX_OUTSTANDING,
    BlockError,
    BlockSession,
    EncodedBlock,
    ReadBlock,
    answering,
)
from dragonrt.runtime.modes.blocks.answering import IDLE_S, INBOX
from dragonrt.runtime.modes.speculative import SpeculativePlan, SpeculativeVerifying
from dragonrt.runtime.predictor import NextToken
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.speculative import Verdict
from dragonrt.simulation.blocks import block_asking, coupled_oracle
from dragonrt.simulation.drafter import Script
from dragonrt.simulation.loop import run
from dragonrt.simulation.pair import (
    SimulatedCloud,
    SimulatedDevice,
    SimulatedSide,
    linked_device,
)
from dragonrt.wire import messages as wire
from dragonrt.wire.errors import Reason

SCRIPT = Script(3, vocabulary=33)
PLAN = SpeculativePlan(seed=1, sampler=Sampler(0.8), max_tokens=12)
IDS = codec("ids", 33)
K_SQS = codec("ksqs:4:20", 33).header
LATTICE = replace(PLAN, rule="rejection", codec="ksqs:4:20")


class Stranger:
    """A session on the device's side that says what it likes."""

    schedules = False

    def __init__(self) -> None:
        self.heard: list[wire.SessionMessage] = []
        self.reason: str | None = None

    def receive(self, message: wire.SessionMessage) -> None:
        self.heard.append(message)

    def lost(self, reason: str) -> None:
        self.reason = reason


def block(number: int = 1, **fields: Any) -> Callable[[int], wire.SessionMessage]:
    """A good first block of the session, but for the given fields."""
    good: dict[str, Any] = {
        "round": number,
        "step": 0,
        "prefix_hash": start_hash(PLAN.seed) & 0xFFFFFFFF,
        "count": 2,
        "resolutions": (),
        "decided": (),
        "payload": encode_block(IDS, [5, 7], []),
    }
    return lambda session: wire.Block(session=session, **{**good, **fields})


def said_to_the_cloud(
    plan: SpeculativePlan, *messages: Callable[[int], wire.SessionMessage], **opening: Any
) -> Stranger:
    """A stranger that said all that; afterwards the same connection gives a good answer."""

    def refuse_nothing(number: int) -> wire.OpenBlocks:
        return replace(plan.open_message("who?", (), (), number), **opening)

    async def talk(device: SimulatedDevice) -> Stranger:
        stranger, peer = Stranger(), device.connector.peer
        assert peer is not None
        number = peer.open(stranger, refuse_nothing)
        for message in messages:
            peer.send(message(number))
        await asyncio.sleep(5.0)
        given = await block_asking(device, PLAN).ask("who?")
        assert given.tokens == coupled_oracle(PLAN, SCRIPT)
        assert given.counts.alone_from is None
        peer.close(number, Reason.FINISHED)
        return stranger

    return run(with_device(talk))


async def with_device(talk: Callable[[SimulatedDevice], Any]) -> Any:
    cloud = SimulatedCloud(SimulatedSide("cloud", lambda _: SCRIPT, prepare_s=0.05))
    device = SimulatedSide("device", lambda _: SCRIPT)

    def emulate(stream: Any) -> EmulatedStream:
        return EmulatedStream(stream, LinkModel(latency_s=0.01), LinkModel(latency_s=0.01))

    async with linked_device(cloud, device, emulate) as connected:
        result = await talk(connected)
    await cloud.wait_idle()
    return result


def test_a_good_block_is_answered() -> None:
    stranger = said_to_the_cloud(PLAN, block())
    assert stranger.reason is None
    opened, verdict = stranger.heard
    assert isinstance(opened, wire.Opened)
    assert isinstance(verdict, wire.Verdict)
    assert (verdict.round, verdict.accepted <= 2) == (1, True)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (block(payload=IDS.header), "too early"),
        (block(payload=b"\xff\xff\xff"), "not from the codec ids"),
        (block(payload=encode_block(IDS, [5, 7], []) + b"\0"), "after its last field"),
        (block(payload=IDS.header + b"\xff\xff"), "beyond 33"),
        (block(count=3), "too early"),
        (block(step=11), "longest answer"),
        (block(count=200), "longest answer"),
        (block(0), "came after"),
        (lambda number: wire.Draft(number, 0, 0, 3, 0.0, 0, 0, 0, b""), "has no place"),
    ],
)
def test_a_bad_block_ends_its_session(
    message: Callable[[int], wire.SessionMessage], reason: str
) -> None:
    stranger = said_to_the_cloud(PLAN, message)
    assert stranger.reason is not None
    assert reason in stranger.reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"payload": encode_block(IDS, [5, 7], [])}, "not from the codec"),
        ({"payload": K_SQS + b"\xff\xff\xff\xff\xff\xff\xff\xff"}, "discard it"),
        ({"payload": K_SQS + bytes(40), "resolutions": (2**20,)}, "resolution"),
        ({"payload": K_SQS + bytes(2**15)}, "takes too long to read"),
    ],
)
def test_bad_lattice_points_end_their_session(fields: dict[str, Any], reason: str) -> None:
    stranger = said_to_the_cloud(LATTICE, block(**fields))
    assert stranger.reason is not None
    assert reason in stranger.reason


@pytest.mark.parametrize(
    ("opening", "reason"),
    [
        ({"mode": "telepathy"}, "no mode 'telepathy'"),
        ({"rule": "telepathy"}, "unknown rule"),
        ({"codec": "zip"}, "unknown codec"),
        ({"rule": "rejection"}, "the codec ids sends none"),
    ],
)
def test_what_cannot_be_served_is_refused_when_it_is_opened(
    opening: dict[str, str], reason: str
) -> None:
    stranger = said_to_the_cloud(PLAN, **opening)
    assert stranger.reason is not None
    assert reason in stranger.reason
    assert stranger.heard == []


def test_more_blocks_than_may_be_under_way_end_the_session() -> None:
    flood = [block(number) for number in range(1, INBOX + 2)]
    stranger = said_to_the_cloud(PLAN, *flood)
    assert stranger.reason == f"more than {INBOX} blocks wait for an answer"
    assert stranger.heard == []


def test_a_block_that_takes_too_much_memory_ends_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answering, "LARGEST_READING", 3 * 256 * 33)
    many = replace(PLAN, documents=256)
    assert said_to_the_cloud(many, block()).reason is None
    stranger = said_to_the_cloud(many, block(count=3, payload=encode_block(IDS, [5, 7, 9], [])))
    assert stranger.reason is not None
    assert "3 tokens over 256 documents takes too much memory" in stranger.reason


def test_a_round_that_came_before_ends_the_session() -> None:
    stranger = said_to_the_cloud(PLAN, block(4), block(4))
    assert stranger.reason == "block 4 came after block 4"


def test_blocks_of_another_text_are_dropped_but_not_for_ever() -> None:
    dead = [block(number, prefix_hash=7) for number in range(1, MAX_OUTSTANDING)]
    stranger = said_to_the_cloud(PLAN, *dead, block(MAX_OUTSTANDING))
    assert stranger.reason is None
    assert [type(message) for message in stranger.heard] == [wire.Opened, wire.Verdict]
    stranger = said_to_the_cloud(PLAN, *dead, block(MAX_OUTSTANDING, step=1, decided=(3,)))
    assert stranger.reason == f"{MAX_OUTSTANDING} blocks in a row follow another text"


def test_decided_tokens_bring_the_text_where_the_block_begins() -> None:
    follows = extend_hash(start_hash(PLAN.seed), 9) & 0xFFFFFFFF
    first = block(step=1, decided=(9,), prefix_hash=follows)
    again = block(2, step=1, decided=(9,), prefix_hash=follows)
    stranger = said_to_the_cloud(PLAN, first, again)
    assert stranger.reason is None
    verdicts = [each for each in stranger.heard if isinstance(each, wire.Verdict)]
    assert len({(verdict.accepted, verdict.token) for verdict in verdicts}) == 1
    assert len(verdicts) == 2


def test_a_session_in_which_nothing_comes_is_closed() -> None:
    async def wait(device: SimulatedDevice) -> Stranger:
        stranger, peer = Stranger(), device.connector.peer
        assert peer is not None
        peer.open(stranger, lambda number: PLAN.open_message("who?", (), (), number))
        await asyncio.sleep(IDLE_S - 1)
        assert stranger.reason is None
        await asyncio.sleep(2.0)
        return stranger

    assert run(with_device(wait)).reason == f"no block came for {IDLE_S:g} s"


def test_an_impossible_verdict_ends_the_session_and_the_device_goes_on_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Generous(SpeculativeVerifying):
        def answer(self, block: ReadBlock, said: Any) -> Verdict:
            assert all(isinstance(each, NextToken) for each in said)
            return Verdict(len(block.tokens) + 1, 3)

    monkeypatch.setitem(serving.VERIFYING, "speculative", Generous)

    async def ask(device: SimulatedDevice) -> Any:
        return await block_asking(device, PLAN).ask("who?")

    given = run(with_device(ask))
    assert len(given.tokens) == PLAN.max_tokens
    assert given.counts.alone_from == 0
    assert "a verdict accepts 5 tokens of a block of 4" in given.notices[0]


# The asking side's session by itself.


class StubPeer:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[wire.SessionMessage] = []

    def open(self, session: Any, message: Callable[[int], wire.OpenBlocks]) -> int:
        self.sent.append(message(8))
        return 8

    def send(self, message: wire.SessionMessage) -> int:
        self.sent.append(message)
        return 0


async def session_with(
    blocks: int,
) -> tuple[BlockSession, list[tuple[wire.Verdict | wire.Upload, float]]]:
    answers: list[tuple[wire.Verdict | wire.Upload, float]] = []
    session = BlockSession(
        StubPeer(),  # type: ignore[arg-type]
        answered=lambda message, waited_s: answers.append((message, waited_s)),
        lost=lambda reason: None,
    )
    session.open(PLAN, "who?", (), ())
    for number in range(blocks):
        assert session.send(EncodedBlock(0, 5, 2, b"", 10)) == number + 1
    return session, answers


def verdict(number: int, accepted: int = 1) -> wire.Verdict:
    return wire.Verdict(8, number, accepted, 3, 0)


async def test_answers_come_in_the_order_of_their_blocks() -> None:
    session, answers = await session_with(2)
    session.receive(verdict(1))
    session.receive(verdict(2))
    assert [message.round for message, _ in answers] == [1, 2]


@pytest.mark.parametrize(
    "message",
    [
        verdict(1),
        verdict(3),
        verdict(9),
        verdict(2, accepted=3),
        wire.Upload(8, 2, 0.0, 0, (b"", b"")),
        wire.Target(8, 0, 0, 0, "cloud"),
    ],
)
async def test_an_answer_out_of_order_or_of_another_size_is_refused(
    message: wire.SessionMessage,
) -> None:
    session, _ = await session_with(3)
    session.receive(verdict(1))
    with pytest.raises(BlockError):
        session.receive(message)


async def test_answers_to_blocks_that_were_given_up_pass_once() -> None:
    session, answers = await session_with(2)
    session.give_up()
    session.receive(verdict(1))
    assert session.send(EncodedBlock(0, 5, 2, b"", 10)) == 3
    session.receive(verdict(3))
    with pytest.raises(BlockError):  # it is older than one that was answered
        session.receive(verdict(2))
    assert [message.round for message, _ in answers] == [3]
