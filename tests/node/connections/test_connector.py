"""Connections that are made, and made again: with back-off, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from dragonrt.errors import DragonError, LinkError
from dragonrt.link.memory import memory_streams
from dragonrt.link.stream import TlsError
from dragonrt.node.connections.hosts import Connector, Hosts, mistaken
from dragonrt.node.connections.peer import Peer
from dragonrt.testing.faults import Cut, CutStream
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide, kept
from dragonrt.testing.scripted import Script
from dragonrt.timeouts import USUAL
from dragonrt.traces.events import Noticed
from dragonrt.traces.notices import NoticeKind
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

    def hosts(self) -> Hosts:
        return Hosts({"cloud": Connector(self.dial, on_notice=self.told.append)})

    async def vanish(self) -> None:
        self.reachable = False
        await asyncio.sleep(0.01)  # the cloud has the handshake's last message
        await self.cloud.kill()


def connected(network: Network, act: Callable[[Hosts], Awaitable[T]]) -> T:
    """What `act` returns, while the connection is kept."""

    async def keep() -> T:
        hosts = network.hosts()
        await hosts.connect()
        async with kept(hosts):
            result = await act(hosts)
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
        hosts = there.hosts()
        with pytest.raises(error):
            await hosts.connect()
        assert not hosts.connected
        assert hosts.peer is None


@virtual
async def test_of_several_hosts_the_error_that_may_pass_is_raised() -> None:
    def failing(error: DragonError) -> Connector:
        async def dial() -> Peer:
            raise error

        return Connector(dial)

    lasting, passing = HandshakeError(Reason.KEY, "another key"), LinkError("cannot reach it")
    for errors in ((lasting, passing), (passing, lasting)):
        hosts = Hosts({str(number): failing(each) for number, each in enumerate(errors)})
        with pytest.raises(DragonError) as caught:
            await hosts.connect()
        assert not mistaken(caught.value)
    with pytest.raises(DragonError) as caught:
        await Hosts({name: failing(lasting) for name in "ab"}).connect()
    assert mistaken(caught.value)


def test_a_lost_connection_is_made_again_and_its_traffic_counted() -> None:
    async def lose(hosts: Hosts) -> None:
        first, before = hosts.peer, hosts.traffic()
        assert first is not None
        await network.vanish()
        network.reachable = True
        await asyncio.sleep(0.01)
        assert first.end is not None
        assert first.end.reason is Reason.SHUTDOWN
        second = await hosts.wait_connected(1.0)
        assert second is not None
        assert second is not first
        after = hosts.traffic()
        assert after.sent >= 2 * second.connection.traffic().sent - 100 > 0
        assert after.received > before.received

    network = Network()
    connected(network, lose)


def test_back_off_doubles_up_to_its_bound() -> None:
    async def wait(hosts: Hosts) -> None:
        await network.vanish()
        await asyncio.sleep(100.0)
        assert hosts.peer is None
        network.reachable = True
        await asyncio.sleep(USUAL.longest_back_off_s)
        assert hosts.peer is not None

    network = Network()
    connected(network, wait)
    gaps = [b - a for a, b in zip(network.dials[1:], network.dials[2:], strict=False)]
    doubled = [min(USUAL.back_off_s * 2**n, USUAL.longest_back_off_s) for n in range(len(gaps))]
    assert gaps == pytest.approx(doubled)
    assert gaps[-1] == pytest.approx(USUAL.longest_back_off_s)


def test_who_waits_for_a_cloud_has_it_soon_after_it_is_back() -> None:
    async def wait(hosts: Hosts) -> float:
        await network.vanish()
        waiting = asyncio.create_task(hosts.wait_connected(USUAL.answer_s))
        await asyncio.sleep(0.8 * USUAL.answer_s)
        network.reachable = True
        back_s = now()
        assert await waiting is not None
        return now() - back_s

    network = Network()
    assert connected(network, wait) <= USUAL.probe_s


def test_who_is_refused_says_why_once_and_is_let_in_when_that_is_mended() -> None:
    async def wait(hosts: Hosts) -> None:
        await network.cloud.kill()
        network.cloud = SimulatedCloud(side("cloud", vocabulary=33))
        assert await hosts.wait_connected(100.0) is None
        assert network.told[-1].text.endswith(hosts.absence)
        await network.cloud.kill()
        network.cloud = SimulatedCloud(side("cloud"))
        assert await hosts.wait_connected(2 * USUAL.longest_back_off_s) is not None
        assert hosts.reconnections == 1

    network = Network()
    connected(network, wait)
    _, refused, _ = network.told
    assert (refused.kind, refused.reason) == (NoticeKind.REFUSED, Reason.VOCABULARY)


@virtual
async def test_a_cloud_that_is_not_there_yet_is_dialled_until_it_is() -> None:
    network = Network()
    network.reachable = False
    hosts = network.hosts()
    with pytest.raises(LinkError):
        await hosts.connect()
    async with kept(hosts):
        assert await hosts.wait_connected(100.0) is None
        assert not hosts.met
        assert network.told == []  # whoever called `connect` has the error
        network.reachable = True
        assert await hosts.wait_connected(USUAL.longest_back_off_s) is not None
        assert (hosts.met, hosts.reconnections, len(network.told)) == (True, 0, 1)
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
    wrapped = DragonError("host a")
    wrapped.__cause__ = error
    assert mistaken(wrapped) is whose


def test_a_question_dials_at_once_and_goes_on_without_a_cloud_that_stays_away() -> None:
    """Also while the back-off is long."""

    async def ask(hosts: Hosts) -> tuple[float, float]:
        await network.vanish()
        lost_s = now()
        assert await hosts.reach() is None
        without_s = now() - lost_s
        await asyncio.sleep(12 * USUAL.longest_back_off_s)
        network.reachable = True
        assert not hosts.connected
        asked_s = now()
        assert await hosts.reach() is not None
        return without_s, now() - asked_s

    network = Network()
    without_s, with_s = connected(network, ask)
    assert without_s == pytest.approx(USUAL.reach_s)
    assert with_s < USUAL.reach_s
