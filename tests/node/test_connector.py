"""Connections that are made, and made again: with back-off, in virtual time."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from dragonrt.errors import DragonError, LinkError
from dragonrt.link.memory import memory_streams
from dragonrt.link.stream import TlsError
from dragonrt.node.connector import Connector, mistaken
from dragonrt.node.gatekeeper import CloudLimits
from dragonrt.node.hosts import Hosts
from dragonrt.node.peer import ConnectionLostError, Peer
from dragonrt.testing.faults import Cut, CutStream
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide
from dragonrt.testing.scripted import Script
from dragonrt.timeouts import USUAL
from dragonrt.wire.reasons import HandshakeError, Reason


def side(name: str, vocabulary: int = 32) -> SimulatedSide:
    return SimulatedSide("cloud" if name == "cloud" else "device", lambda _: Script(0, vocabulary))


class Network:
    """A cloud that can be reached or not; `dials` are the times of all attempts."""

    def __init__(self, vocabulary: int = 32) -> None:
        self.cloud = SimulatedCloud(side("cloud", vocabulary))
        self.reachable = True
        self.cut: Cut | None = None
        self.dials: list[float] = []
        self.told: list[str] = []

    async def dial(self) -> Peer:
        self.dials.append(asyncio.get_running_loop().time())
        if not self.reachable:
            raise LinkError("cannot reach the cloud")
        ours, theirs = memory_streams()
        self.cloud.accept(theirs if self.cut is None else CutStream(theirs, self.cut))
        device = side("device")
        return Peer(ours, device.connection(), device.recorder)


async def with_connector(network: Network, act: Callable[[Hosts], object]) -> object:
    """What `act` returns, while a connector keeps its connection."""
    connector = Hosts({"cloud": Connector(network.dial, on_notice=network.told.append)})
    await connector.connect()
    keeper = asyncio.create_task(connector.run(), name="connector")
    try:
        result = act(connector)
        return await result if asyncio.iscoroutine(result) else result
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await network.cloud.wait_idle()


def test_the_first_connection_says_why_there_is_none() -> None:
    async def connect() -> None:
        network = Network()
        network.reachable = False
        connector = Hosts({"cloud": Connector(network.dial)})
        with pytest.raises(LinkError, match="cannot reach the cloud"):
            await connector.connect()
        assert not connector.connected
        assert connector.peer is None

        connector = Hosts({"cloud": Connector(Network(vocabulary=33).dial)})
        with pytest.raises(HandshakeError, match="the cloud's simulated has 33"):
            await connector.connect()
        assert not connector.connected

    run(connect())


def test_a_lost_connection_is_made_again_and_its_traffic_counted() -> None:
    async def lose(connector: Hosts) -> None:
        first, before = connector.peer, connector.traffic()
        assert first is not None
        await asyncio.sleep(0.01)  # the cloud has the handshake's last message
        await network.cloud.kill()
        await asyncio.sleep(0.01)
        assert first.lost_reason == "this side ends"
        second = await connector.wait_connected(1.0)
        assert second is not None
        assert second is not first
        after = connector.traffic()
        assert after[0] >= 2 * second.connection.statistics().bytes_sent - 100 > 0
        assert after[1] > before[1]

    network = Network()
    run(with_connector(network, lose))


def test_back_off_doubles_up_to_its_bound() -> None:
    async def wait(connector: Hosts) -> None:
        network.reachable = False
        await network.cloud.kill()
        await asyncio.sleep(100.0)
        assert connector.peer is None
        network.reachable = True
        await asyncio.sleep(USUAL.longest_back_off_s)
        assert connector.peer is not None

    network = Network()
    run(with_connector(network, wait))
    gaps = [b - a for a, b in zip(network.dials[1:], network.dials[2:], strict=False)]
    expected = USUAL.back_off_s
    for gap in gaps:
        assert gap == pytest.approx(expected)
        expected = min(2 * expected, USUAL.longest_back_off_s)
    assert gaps[-1] == pytest.approx(USUAL.longest_back_off_s)


def test_who_waits_for_a_cloud_has_it_soon_after_it_is_back() -> None:
    async def wait(connector: Hosts) -> float:
        loop = asyncio.get_running_loop()
        network.reachable = False
        await asyncio.sleep(0.01)
        await network.cloud.kill()
        waiting = asyncio.create_task(connector.wait_connected(USUAL.answer_s))
        await asyncio.sleep(0.8 * USUAL.answer_s)
        network.reachable = True
        back_s = loop.time()
        assert await waiting is not None
        return loop.time() - back_s

    network = Network()
    waited_s = run(with_connector(network, wait))
    assert isinstance(waited_s, float)
    assert waited_s <= USUAL.probe_s


def test_a_handshake_that_is_cut_short_is_tried_again() -> None:
    async def wait(connector: Hosts) -> None:
        for after_writes in (0, 1):
            network.cut = Cut("cloud", after_writes=after_writes)
            await network.cloud.kill()
            assert await connector.wait_connected(5.0) is None
            network.cut = None
            assert await connector.wait_connected(60.0) is not None

    network = Network()
    run(with_connector(network, wait))


def test_who_is_refused_says_why_once_and_is_let_in_when_that_is_mended() -> None:
    async def wait(connector: Hosts) -> None:
        await network.cloud.kill()
        network.cloud = SimulatedCloud(side("cloud", vocabulary=33))
        assert await connector.wait_connected(100.0) is None
        assert "has 32 tokens" in connector.absence
        await network.cloud.kill()
        network.cloud = SimulatedCloud(side("cloud"))
        assert await connector.wait_connected(2 * USUAL.longest_back_off_s) is not None
        assert connector.reconnections == 1

    network = Network()
    run(with_connector(network, wait))
    lost, refused, found = network.told
    assert "lost" in lost
    assert "has 32 tokens" in refused
    assert "there again" in found


def test_a_cloud_that_is_not_there_yet_is_dialled_until_it_is() -> None:
    async def start() -> None:
        network = Network()
        network.reachable = False
        connector = Hosts({"cloud": Connector(network.dial, on_notice=network.told.append)})
        with pytest.raises(LinkError):
            await connector.connect()
        keeper = asyncio.create_task(connector.run(), name="connector")
        assert await connector.wait_connected(100.0) is None
        assert not connector.met
        assert network.told == []  # whoever called `connect` has the error
        network.reachable = True
        assert await connector.wait_connected(USUAL.longest_back_off_s) is not None
        assert connector.met
        assert connector.reconnections == 0
        (found,) = network.told
        assert "again" not in found
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await network.cloud.wait_idle()

    run(start())


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (LinkError("no such host"), False),
        (TlsError("not trusted"), True),
        (HandshakeError(Reason.BUSY, "full"), False),
        (HandshakeError(Reason.LOST, "it closed"), False),
        (HandshakeError(Reason.KEY, "another key"), True),
        (HandshakeError(Reason.VERSION, "another version"), True),
        (None, False),
    ],
)
def test_a_mistake_is_what_somebody_has_to_mend(error: DragonError | None, whose: bool) -> None:
    assert mistaken(error) is whose
    wrapped = DragonError("host a")
    wrapped.__cause__ = error
    assert mistaken(wrapped) is whose


def test_a_full_cloud_is_the_reason_that_is_given() -> None:
    """Also where it says so in the same breath as the end of the handshake."""

    async def connect() -> None:
        network = Network()
        network.cloud = SimulatedCloud(side("cloud"), CloudLimits(most_devices=1))
        first = Hosts({"cloud": Connector(network.dial)})
        await first.connect()
        keeper = asyncio.create_task(first.run(), name="connector")
        second = Hosts({"cloud": Connector(network.dial, on_notice=network.told.append)})
        with suppress(DragonError):
            await second.connect()
        again = asyncio.create_task(second.run(), name="connector")
        await asyncio.sleep(1.0)
        assert "devices already" in second.absence
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        assert await second.wait_connected(2 * USUAL.longest_back_off_s) is not None
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)
        await network.cloud.wait_idle()

    run(connect())


def test_a_cloud_that_never_completes_the_handshake_is_reported() -> None:
    async def connect() -> None:
        async def dial() -> Peer:
            ours, _ = memory_streams()
            device = side("device")
            return Peer(ours, device.connection(), device.recorder)

        with pytest.raises(ConnectionLostError, match="is it dragonrt that listens there"):
            await Connector(dial).connect()

    run(connect())


def test_a_question_does_not_wait_for_the_back_off() -> None:
    """The cloud comes back when the back-off is long: asking dials at once."""

    async def ask(connector: Hosts) -> float:
        loop = asyncio.get_running_loop()
        network.reachable = False
        await asyncio.sleep(0.01)
        await network.cloud.kill()
        await asyncio.sleep(12 * USUAL.longest_back_off_s)
        network.reachable = True
        assert not connector.connected
        asked_s = loop.time()
        assert await connector.reach() is not None
        return loop.time() - asked_s

    network = Network()
    waited_s = run(with_connector(network, ask))
    assert isinstance(waited_s, float)
    assert waited_s < USUAL.reach_s


def test_a_question_goes_on_without_a_cloud_that_stays_away() -> None:
    async def ask(connector: Hosts) -> float:
        loop = asyncio.get_running_loop()
        network.reachable = False
        await asyncio.sleep(0.01)
        await network.cloud.kill()
        asked_s = loop.time()
        assert await connector.reach() is None
        return loop.time() - asked_s

    network = Network()
    assert run(with_connector(network, ask)) == pytest.approx(USUAL.reach_s)
