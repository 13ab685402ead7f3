"""Connections that are made, and made again: with back-off, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from dragonrt.errors import DragonError, LinkError
from dragonrt.link.emulation import memory_streams
from dragonrt.link.stream import TlsError
from dragonrt.node.connections.connector import Connector, kept, mistaken
from dragonrt.node.connections.peer import Peer
from dragonrt.testing.faults import Cut, CutStream
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide
from dragonrt.testing.scripted import Script
from dragonrt.timeouts import USUAL
from dragonrt.traces.events import Noticed, NoticeKind
from dragonrt.wire.reasons import HandshakeError, Reason
from tests.node.virtual import virtual

T = TypeVar("T")


def side(name: str, vocabulary: int = 32) -> SimulatedSide:
    return SimulatedSide("cloud" if name == "cloud" else "device", lambda _: Script(0, vocabulary))


class Network:
    """A cloud that can be reached or not; `dials` are the times of all attempts."""

    def __init__(self, vocabulary: int = 32) -> None:
        self.cloud = SimulatedCloud(side("cloud", vocabulary))
        self.reachable = True
        self.cut: Cut | None = None
        self.dials: list[float] = []
        self.told: list[Noticed] = []

    async def dial(self) -> Peer:
        self.dials.append(asyncio.get_running_loop().time())
        if not self.reachable:
            raise LinkError("cannot reach the cloud")
        ours, theirs = memory_streams()
        self.cloud.accept(theirs if self.cut is None else CutStream(theirs, self.cut))
        device = side("device")
        return Peer(ours, device.connection(), device.recorder)

    def connector(self) -> Connector:
        return Connector(self.dial, on_notice=self.told.append)

    async def vanish(self) -> None:
        self.reachable = False
        await asyncio.sleep(0.01)  # the cloud has the handshake's last message
        await self.cloud.kill()


def connected(network: Network, act: Callable[[Connector], Awaitable[T]]) -> T:
    """What `act` returns, while the connection is kept."""

    async def keep() -> T:
        link = network.connector()
        await link.connect()
        async with kept(link):
            result = await act(link)
        await network.cloud.wait_idle()
        return result

    return run(keep())


def now() -> float:
    return asyncio.get_running_loop().time()


@virtual
async def test_the_first_connection_says_why_there_is_none() -> None:
    network = Network()
    network.reachable = False
    for there, error in ((network, LinkError), (Network(vocabulary=33), HandshakeError)):
        link = there.connector()
        with pytest.raises(error):
            await link.connect()
        assert not link.connected
        assert link.peer is None


def test_a_lost_connection_is_made_again_and_its_traffic_counted() -> None:
    async def lose(link: Connector) -> None:
        first, before = link.peer, link.traffic()
        assert first is not None
        await network.vanish()
        network.reachable = True
        await asyncio.sleep(0.01)
        assert first.end is not None
        assert first.end.reason is Reason.SHUTDOWN
        second = await link.wait_connected(1.0)
        assert second is not None
        assert second is not first
        after = link.traffic()
        assert after.sent >= 2 * second.connection.traffic().sent - 100 > 0
        assert after.received > before.received

    network = Network()
    connected(network, lose)


def test_back_off_doubles_up_to_its_bound() -> None:
    async def wait(link: Connector) -> None:
        await network.vanish()
        await asyncio.sleep(100.0)
        assert link.peer is None
        network.reachable = True
        await asyncio.sleep(USUAL.longest_back_off_s)
        assert link.peer is not None

    network = Network()
    connected(network, wait)
    gaps = [b - a for a, b in zip(network.dials[1:], network.dials[2:], strict=False)]
    doubled = [min(USUAL.back_off_s * 2**n, USUAL.longest_back_off_s) for n in range(len(gaps))]
    assert gaps == pytest.approx(doubled)
    assert gaps[-1] == pytest.approx(USUAL.longest_back_off_s)


def test_who_waits_for_a_cloud_has_it_soon_after_it_is_back() -> None:
    async def wait(link: Connector) -> float:
        await network.vanish()
        waiting = asyncio.create_task(link.wait_connected(USUAL.answer_s))
        await asyncio.sleep(0.8 * USUAL.answer_s)
        network.reachable = True
        back_s = now()
        assert await waiting is not None
        return now() - back_s

    network = Network()
    assert connected(network, wait) <= USUAL.probe_s


def test_a_refusal_is_reported_once_and_ends_when_mended() -> None:
    async def wait(link: Connector) -> None:
        await network.cloud.kill()
        network.cloud = SimulatedCloud(side("cloud", vocabulary=33))
        assert await link.wait_connected(100.0) is None
        assert network.told[-1].text.endswith(link.absence)
        await network.cloud.kill()
        network.cloud = SimulatedCloud(side("cloud"))
        assert await link.wait_connected(2 * USUAL.longest_back_off_s) is not None
        assert link.reconnections == 1

    network = Network()
    connected(network, wait)
    _, refused, _ = network.told
    assert (refused.kind, refused.reason) == (NoticeKind.REFUSED, Reason.VOCABULARY)


@virtual
async def test_a_cloud_that_is_not_there_yet_is_dialled_until_it_is() -> None:
    network = Network()
    network.reachable = False
    link = network.connector()
    with pytest.raises(LinkError):
        await link.connect()
    async with kept(link):
        assert await link.wait_connected(100.0) is None
        assert link.connections == 0
        assert network.told == []  # whoever called `connect` has the error
        network.reachable = True
        assert await link.wait_connected(USUAL.longest_back_off_s) is not None
        assert (link.connections, link.reconnections, len(network.told)) == (1, 0, 1)
    await network.cloud.wait_idle()


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


def test_a_question_dials_now_and_continues_without_the_cloud() -> None:
    """Also while the back-off is long."""

    async def ask(link: Connector) -> tuple[float, float]:
        await network.vanish()
        lost_s = now()
        assert await link.reach() is None
        without_s = now() - lost_s
        await asyncio.sleep(12 * USUAL.longest_back_off_s)
        network.reachable = True
        assert not link.connected
        asked_s = now()
        assert await link.reach() is not None
        return without_s, now() - asked_s

    network = Network()
    without_s, with_s = connected(network, ask)
    assert without_s == pytest.approx(USUAL.reach_s)
    assert with_s < USUAL.reach_s
