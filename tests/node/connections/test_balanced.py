"""One address with several clouds behind it, in virtual time: what becomes of lost hosts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import pytest
from typing_extensions import override

from dragonrt.errors import LinkError
from dragonrt.link.stream import Layer, Stream
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.node.answers.client_session import Answer, ClientSession
from dragonrt.node.connections.admission import CloudLimits
from dragonrt.node.connections.connector import Connector, kept
from dragonrt.node.connections.peer import Peer
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide
from dragonrt.testing.scripted import Script, scripted_resources
from dragonrt.traces.events import Record, TokenDecided
from dragonrt.wire.connection import Connection
from dragonrt.wire.messages import PROTOCOL_VERSION, Hello
from dragonrt.wire.reasons import Reason
from tests.node.virtual import alone, peer_of, virtual

SCRIPT = Script(4, stop=0.0)
QUESTION = Question(prompt="who?", max_tokens=12)
DRAGON = DragonSettings(codec="topp:0.95", run_ahead=4)


@dataclass
class Host:
    """A cloud that can be reached or not, and falls silent."""

    side: SimulatedSide
    cloud: SimulatedCloud
    reachable: bool = True
    dialled: int = 0
    silent: bool = False

    @classmethod
    def holding(cls) -> "Host":
        side = SimulatedSide("cloud", lambda _: SCRIPT)
        return cls(side, SimulatedCloud(side, CloudLimits()))

    @property
    def answered(self) -> int:
        return self.side.prepared

    async def kill(self) -> None:
        """It ends, and does not come back."""
        self.reachable = False
        await self.cloud.kill()


class MuffledStream(Layer):
    """A device's end of a connection to a host, of which nothing is heard once it is silent."""

    def __init__(self, stream: Stream, host: Host) -> None:
        super().__init__(stream)
        self._host = host
        self._closed = asyncio.Event()

    @override
    async def receive(self) -> bytes:
        data = await self._stream.receive()
        if not self._host.silent:
            return data
        await self._closed.wait()
        return b""

    @override
    def write(self, data: bytes) -> None:
        self._stream.write(data)

    @override
    def close(self) -> None:
        self._closed.set()
        super().close()


@dataclass
class Device:
    """A device whose cloud has several hosts behind one address."""

    side: SimulatedSide
    connector: Connector

    async def ask(
        self, how: Settings = DRAGON, kill: Host | None = None, muffle: Host | None = None
    ) -> Answer:
        """The answer; after its third token one host is killed, and another one is silent."""
        tasks = []

        def hear(record: Record) -> None:
            third = isinstance(record.event, TokenDecided) and record.event.step == 2
            if kill is not None and third:
                tasks.append(asyncio.create_task(kill.kill(), name="kill"))
            if muffle is not None and third:
                muffle.silent = True

        resources = scripted_resources(how, self.side.vocabulary)
        answer = await ClientSession(
            self.side, {"cloud": self.connector}, QUESTION, how, resources, hear
        ).ask()
        await asyncio.gather(*tasks)
        return answer


@asynccontextmanager
async def device_of(*hosts: Host) -> AsyncIterator[Device]:
    """The balancer passes a connection on to the first host that answers it."""
    side = SimulatedSide("device", lambda _: SCRIPT)

    async def dial() -> Peer:
        for host in hosts:
            if host.reachable and not host.silent:
                host.dialled += 1
                return peer_of(side, host.cloud, partial(MuffledStream, host=host))
        raise LinkError("cannot reach it")

    connector = Connector(dial)
    await connector.connect()
    async with kept(connector):
        yield Device(side, connector)
    for host in hosts:
        await host.cloud.wait_idle()


class OtherWeights(SimulatedSide):
    """The same names with another model."""

    @override
    def connection(self) -> Connection:
        hello = Hello(
            *(PROTOCOL_VERSION, bytes(16), self.side, "simulated", self.vocabulary),
            *("simulated", "dragonrt"),
            weights="others",
        )
        return Connection(self.side, hello)


@dataclass
class Replaced(Host):
    """In its place another model answers at once."""

    @override
    async def kill(self) -> None:
        ended, self.cloud = self.cloud, SimulatedCloud(OtherWeights("cloud", lambda _: SCRIPT))
        await ended.kill()


@virtual
async def test_an_answer_goes_on_with_no_other_model() -> None:
    host = Replaced.holding()
    async with device_of(host) as device:
        answer = await device.ask(kill=host)
        assert host.dialled == 2
        assert alone(answer)
        assert Reason.UNSUPPORTED in {notice.reason for notice in answer.notices}
        assert not alone(await device.ask()), "the next one begins with it"


@pytest.mark.parametrize("how", [DRAGON, SpeculativeSettings()])
def test_an_answer_goes_on_at_the_next_host(how: Settings) -> None:
    async def ask(*, kill: bool) -> Answer:
        first, second = hosts = Host.holding(), Host.holding()
        async with device_of(*hosts) as device:
            answer = await device.ask(how, first if kill else None)
            assert [first.answered, second.answered] == [1, int(kill)]
            return answer

    whole, resumed = run(ask(kill=False)), run(ask(kill=True))
    assert resumed.tokens == whole.tokens
    assert not alone(resumed)
    assert not resumed.notices


def test_an_answer_waits_for_a_host_that_is_heard() -> None:
    async def ask(*, muffle: bool) -> Answer:
        first, second = hosts = Host.holding(), Host.holding()
        async with device_of(*hosts) as device:
            how = replace(DRAGON, on_loss="wait")
            answer = await device.ask(how, muffle=first if muffle else None)
            assert [first.answered, second.answered] == [1, int(muffle)]
            return answer

    whole, moved = run(ask(muffle=False)), run(ask(muffle=True))
    assert moved.tokens == whole.tokens
    assert not alone(moved)


@virtual
async def test_without_a_host_the_device_is_alone_until_one_is_back() -> None:
    host = Host.holding()
    async with device_of(host) as device:
        await host.kill()
        assert alone(await device.ask())
        host.reachable = True
        assert not alone(await device.ask())
