"""What one side can do to the other over a healthy connection, in virtual time.

`Stranger` speaks the protocol by hand, so it can break every rule of it. Whatever it says, the
session or the connection ends with a reason, and everything else goes on.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from msgspec import structs
from typing_extensions import override

from dragonrt.control.scheduler import Aggregator
from dragonrt.errors import DragonError
from dragonrt.link.emulation import EmulatedStream, memory_streams
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import HIGH_WATER, BufferedStream, Stream, TlsError
from dragonrt.modes.dragon.drafts import Draft
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.prefix import LOW_BITS, start_hash
from dragonrt.modes.question import Question
from dragonrt.node.connections.peer import ConnectionLostError, Peer
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.side import other as other_side
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide, linked_device
from dragonrt.testing.scripted import Script, ScriptedModel
from dragonrt.timeouts import USUAL
from dragonrt.wire.connection import Connection, State
from dragonrt.wire.encoding import FrameDecoder, decode, encode, encode_frame
from dragonrt.wire.fields import pack
from dragonrt.wire.messages import Close, Goodbye, Message, Open, Opened, Ping, Pong
from dragonrt.wire.reasons import End, Reason
from tests.node.virtual import alone
from tests.oracles import oracle
from tests.oracles.asked import Models
from tests.silent_session import SilentSession

QUESTION = Question(prompt="who?", seed=3, sampler=Sampler(0.8), max_tokens=8, stop_tokens=(0,))
LEADERLESS = DragonSettings(codec="topp:0.95", run_ahead=4)
GREEDY = replace(LEADERLESS, aggregator=Aggregator.GREEDY)


def script(question: str) -> Script:
    return Script(len(question))


T = TypeVar("T")
M = TypeVar("M")
SIDES: tuple[Side, ...] = ("device", "cloud")
MODELS: Models = {side: ScriptedModel(side, script("who?")) for side in SIDES}


class Stranger:
    """One side of a connection in the hands of a test."""

    def __init__(self, stream: Stream, side: SimulatedSide) -> None:
        self.stream = stream
        self.heard: list[Message] = []
        self._connection: Connection = side.connection()
        self._frames = FrameDecoder(2**22)

    async def handshake(self) -> None:
        """Agree as an honest side does."""
        connection = self._connection
        self.stream.write(connection.data_to_send())
        while not self._is_open:
            self._frames.feed(await self.stream.receive())
            while not self._is_open and (body := self._frames.next_body()):
                connection.receive_data(encode_frame(body))
                self.stream.write(connection.data_to_send())
        self._take()

    @property
    def _is_open(self) -> bool:
        return self._connection.state is State.OPEN

    def say(self, *messages: Message) -> None:
        for message in messages:
            self.stream.write(encode_frame(encode(message)))

    async def hear(self, kind: type[M]) -> M:
        """The next message of that kind, after as many others as come."""
        while True:
            for index, message in enumerate(self.heard):
                if isinstance(message, kind):
                    del self.heard[: index + 1]
                    return message
            data = await self.stream.receive()
            if not data:
                raise EOFError
            self._frames.feed(data)
            self._take()

    def _take(self) -> None:
        while (body := self._frames.next_body()) is not None:
            message = decode(body)
            if isinstance(message, Ping):
                self.say(Pong(message.sequence, message.time_us, len(body) + 4))
            self.heard.append(message)

    async def listen(self) -> None:
        """Answer pings until the stream ends."""
        with pytest.raises(EOFError):
            await self.hear(Authenticated)

    async def leave(self) -> None:
        self.stream.close()
        await self.stream.wait_closed()


class Authenticated(Goodbye, frozen=True):
    """A kind of message that never comes."""


def astray(number: int) -> Draft:
    """A draft that follows no text of the session."""
    decided_hash = start_hash(QUESTION.seed) & LOW_BITS
    return Draft(1, 0, number, 5, 0.0, 1000, 0, decided_hash, b"\xff")


# A cloud, and a device that misbehaves.


async def closed_after(messages: list[Message]) -> Close:
    """How the cloud ends a strange device's session while a good one gets its answer."""
    cloud = SimulatedCloud(SimulatedSide("cloud", script))
    ours, theirs = memory_streams()
    cloud.accept(theirs)
    stranger = Stranger(ours, SimulatedSide("device", script))

    def emulate(stream: Stream) -> Stream:
        return EmulatedStream(stream, *LinkProfile(latency_s=0.01).models("device"))

    async with linked_device(cloud, SimulatedSide("device", script), emulate) as device:
        asking = asyncio.create_task(device.asking(QUESTION, LEADERLESS).ask())
        await stranger.handshake()
        stranger.say(*messages)
        heard = await stranger.hear(Close)
        given = await asking
        assert given.tokens == oracle(QUESTION, LEADERLESS, MODELS)
        assert not alone(given)
        await stranger.leave()
    await cloud.wait_idle()
    assert cloud.sessions == 0
    return heard


STRANGE = replace(QUESTION, prompt="a strange question")
OPEN = Open(1, "dragon", pack(STRANGE), pack(LEADERLESS))


def opening(**changes: object) -> Open:
    """OPEN with other values in it."""
    question, settings = dict(OPEN.question), dict(OPEN.settings)
    for name, value in changes.items():
        (question if name in question else settings)[name] = value
    return structs.replace(OPEN, question=tuple(question.items()), settings=tuple(settings.items()))


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([opening(rule="coin")], Reason.UNSUPPORTED),
        ([opening(aggregator="nobody")], Reason.UNSUPPORTED),
        ([opening(codec="zip")], Reason.UNSUPPORTED),
        ([opening(rule="algorithm1")], Reason.UNSUPPORTED),
        ([opening(stop_tokens=(10**6).to_bytes(4, "little"))], Reason.UNSUPPORTED),
        ([opening(colour="red")], Reason.UNSUPPORTED),
        ([structs.replace(OPEN, mode="telepathy")], Reason.UNSUPPORTED),
        ([OPEN, *map(astray, range(1000))], Reason.PROTOCOL),
        ([OPEN, astray(start_hash(QUESTION.seed))], Reason.PROTOCOL),  # and cannot be read
        ([OPEN], Reason.MUTE),  # it never drafts
    ],
)
def test_a_device_that_breaks_a_session_hears_why(messages: list[Message], reason: Reason) -> None:
    heard = run(closed_after(messages))
    assert heard.reason is reason
    assert heard.text


def test_a_number_that_is_used_again_is_another_session() -> None:
    """What the last one leaves behind does not end it."""

    async def again() -> None:
        cloud = SimulatedCloud(SimulatedSide("cloud", script, prepare_s=1.0))
        ours, theirs = memory_streams()
        cloud.accept(theirs)
        stranger = Stranger(ours, SimulatedSide("device", script))
        await stranger.handshake()
        stranger.say(OPEN, Close(1, Reason.CANCELLED), OPEN)
        async with asyncio.timeout(3.0):
            assert (await stranger.hear(Opened)).session == 1
        await stranger.leave()
        await cloud.wait_idle()

    run(again())


# Connections.


def silent_pair(own: Side = "device") -> tuple[Peer, Stranger]:
    ours, theirs = memory_streams()
    side, other = (SimulatedSide(each, script) for each in (own, other_side(own)))
    return Peer(ours, side.connection(), side.recorder), Stranger(theirs, other)


def with_stranger(
    act: Callable[[Peer, Stranger], Coroutine[Any, Any, T]], own: Side = "device"
) -> tuple[T, Peer]:
    """What `act` returns with a peer that works until the stranger leaves; and the peer."""

    async def talk() -> tuple[T, Peer]:
        peer, stranger = silent_pair(own)
        await asyncio.gather(peer.handshake(), stranger.handshake())
        working = asyncio.create_task(peer.run())
        found = await act(peer, stranger)
        await stranger.leave()
        await working
        return found, peer

    return run(talk())


@pytest.mark.parametrize("side", SIDES)
def test_a_side_that_only_asks_refuses_to_answer(side: Side) -> None:
    async def ask_back(peer: Peer, stranger: Stranger) -> Close:
        stranger.say(OPEN)
        return await stranger.hear(Close)

    heard, _ = with_stranger(ask_back, side)
    assert heard.reason is Reason.UNSUPPORTED


def test_a_handshake_that_never_comes_is_given_up() -> None:
    async def wait() -> float:
        peer, _ = silent_pair()
        with pytest.raises(ConnectionLostError):
            await peer.handshake()
        return asyncio.get_running_loop().time()

    assert run(wait()) == USUAL.handshake_s


def test_what_tls_says_against_a_handshake_is_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: BufferedStream) -> bytes:
        raise TlsError("a certificate is required")

    async def shake_hands() -> None:
        peer, _ = silent_pair()
        with pytest.raises(TlsError):
            await peer.handshake()

    monkeypatch.setattr(BufferedStream, "receive", fail)
    run(shake_hands())


class Refusing(SilentSession):
    """A session that refuses every message."""

    @override
    def receive(self, message: Message) -> None:
        raise DragonError("no place for this")


def test_a_silent_connection_is_lost_and_its_sessions_say_why() -> None:
    session = SilentSession()

    async def wait() -> tuple[Goodbye, float]:
        peer, stranger = silent_pair()
        await asyncio.gather(peer.handshake(), stranger.handshake())
        peer.open(session, structs.replace(OPEN, session=peer.next_number()))
        await peer.run()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0  # else its next timeout would cancel it on Python 3.11.2
        time_s = asyncio.get_running_loop().time()
        return await stranger.hear(Goodbye), time_s

    goodbye, time_s = run(wait())
    assert goodbye.reason is Reason.IDLE
    assert session.ends == [End(Reason.IDLE, goodbye.text)]
    assert USUAL.silence_s <= time_s < 2 * USUAL.silence_s


def test_a_connection_that_answers_probes_lives() -> None:
    async def wait(peer: Peer, stranger: Stranger) -> None:
        listening = asyncio.create_task(stranger.listen())
        await asyncio.sleep(10 * USUAL.silence_s)
        assert peer.connection.state is State.OPEN
        assert peer.rtt.average == 0.0
        assert not any(each.padding for each in stranger.heard if isinstance(each, Ping))
        peer.leave()
        await listening

    with_stranger(wait)


def test_an_echo_that_comes_much_too_late_measures_nothing() -> None:
    """And a side that never answers fills no memory."""

    async def wait(peer: Peer, stranger: Stranger) -> None:
        for _ in range(20):
            await asyncio.sleep(USUAL.keep_alive_s)
            stranger.say(Ping(1, 1))
        stranger.say(Pong(1, 1, 1))
        await asyncio.sleep(0.1)
        assert peer.connection.state is State.OPEN
        assert peer.rtt.average is None

    with_stranger(wait)


@pytest.mark.parametrize("reads", [True, False])
def test_a_flood_of_probes_is_answered_while_its_sender_reads(reads: bool) -> None:
    async def flood(peer: Peer, stranger: Stranger) -> None:
        listening = asyncio.create_task(stranger.listen() if reads else asyncio.sleep(0))
        for _ in range(200):
            stranger.say(*(Ping(n, 1) for n in range(400)))
            await asyncio.sleep(USUAL.answer_s / 100)
        assert peer.connection.state is (State.OPEN if reads else State.CLOSED)
        assert (peer.connection.traffic().sent < 2 * HIGH_WATER) is not reads
        peer.leave()
        await listening

    _, peer = with_stranger(flood)
    assert peer.end is None if reads else peer.end and peer.end.reason is Reason.IDLE


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", Reason.MALFORMED),
        ((2**27).to_bytes(4, "big"), Reason.TOO_LARGE),
        (encode_frame(b"\xc1"), Reason.MALFORMED),
        (encode_frame(encode(Pong(1, 1, 1)))[:5], Reason.LOST),
        (encode_frame(encode(Goodbye(Reason.SHUTDOWN, "good night"))), Reason.SHUTDOWN),
    ],
)
def test_bytes_that_make_no_sense_end_the_connection(data: bytes, expected: Reason) -> None:
    async def end(peer: Peer, stranger: Stranger) -> None:
        stranger.stream.write(data)
        await asyncio.sleep(0.1)

    _, peer = with_stranger(end)
    assert peer.end is not None
    assert peer.end.reason is expected


def test_an_error_of_our_own_ends_the_session_and_is_seen() -> None:
    session = Refusing()

    async def fail(peer: Peer, stranger: Stranger) -> Close:
        peer.open(session, structs.replace(OPEN, session=peer.next_number()))
        await stranger.hear(Open)
        stranger.say(Opened(OPEN.session, 4, 0, 0))
        return await stranger.hear(Close)

    heard, _ = with_stranger(fail)
    assert session.ends == [End(heard.reason, heard.text)]
    assert heard.text == "no place for this"
