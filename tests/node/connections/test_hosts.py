"""Several clouds as one, in virtual time: where answers go, and what becomes of lost hosts."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from typing_extensions import override

from dragonrt.errors import DragonError, LinkError
from dragonrt.link.stream import Layer, Stream
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.node.answers.client_session import Answer, ClientSession
from dragonrt.node.connections.admission import CloudLimits
from dragonrt.node.connections.hosts import Connector, Hosts
from dragonrt.node.connections.peer import Peer
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide, kept
from dragonrt.testing.scripted import Script, scripted_resources
from dragonrt.timeouts import USUAL
from dragonrt.traces.events import Noticed, Record, TokenDecided
from dragonrt.traces.notices import NoticeKind
from dragonrt.wire.connection import Connection
from dragonrt.wire.messages import PROTOCOL_VERSION, Hello
from dragonrt.wire.reasons import Reason
from tests.node.virtual import alone, peer_of, virtual

SCRIPT = Script(4, stop=0.0)
QUESTION = Question(prompt="who?", max_tokens=12)
DRAGON = DragonSettings(codec="topp:0.95", run_ahead=4)


@dataclass
class Host:
    """A cloud that can be reached or not; `opens` counts its sessions."""

    side: SimulatedSide
    cloud: SimulatedCloud
    reachable: bool = True
    dialled: int = 0
    silent: bool = False

    @classmethod
    def holding(cls, corpus: str = "unknown", limits: CloudLimits | None = None) -> "Host":
        side = SimulatedSide("cloud", lambda _: SCRIPT, corpus=corpus)
        return cls(side, SimulatedCloud(side, limits or CloudLimits()))

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
    """A device with the hosts of its cloud, and the notices it got."""

    side: SimulatedSide
    hosts: Hosts
    told: list[Noticed] = field(default_factory=list)

    async def ask(
        self,
        question: Question = QUESTION,
        how: Settings = DRAGON,
        kill: Host | None = None,
        muffle: Host | None = None,
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
            self.side, {"cloud": self.hosts}, question, how, resources, hear
        ).ask()
        await asyncio.gather(*tasks)
        return answer


@asynccontextmanager
async def device_of(**hosts: Host) -> AsyncIterator[Device]:
    side = SimulatedSide("device", lambda _: SCRIPT)
    told: list[Noticed] = []

    def connector(host: Host) -> Connector:
        async def dial() -> Peer:
            host.dialled += 1
            if not host.reachable:
                raise LinkError("cannot reach it")
            return peer_of(side, host.cloud, partial(MuffledStream, host=host))

        return Connector(dial)

    cloud = Hosts({name: connector(host) for name, host in hosts.items()}, told.append)
    await cloud.connect()
    async with kept(cloud):
        yield Device(side, cloud, told)
    for host in hosts.values():
        await host.cloud.wait_idle()


class OtherWeights(SimulatedSide):
    """The same names with another model."""

    @override
    def connection(self) -> Connection:
        hello = Hello(
            *(PROTOCOL_VERSION, bytes(16), self.side, "simulated", self.vocabulary),
            *("simulated", "dragonrt"),
            weights="others",
            corpus=self.corpus,
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
    async with device_of(only=host) as device:
        answer = await device.ask(kill=host)
        assert host.dialled == 2
        assert alone(answer)
        assert Reason.UNSUPPORTED in {notice.reason for notice in answer.notices}
        assert not alone(await device.ask()), "the next one begins with it"


@virtual
async def test_answers_spread_over_the_hosts_and_a_conversation_stays_where_it_is() -> None:
    hosts = {name: Host.holding() for name in "abc"}
    async with device_of(**hosts) as device:
        for number in range(60):
            await device.ask(replace(QUESTION, prompt=f"who is {number}?", max_tokens=1))
        assert min(host.answered for host in hosts.values()) > 3
        before = Counter({name: host.answered for name, host in hosts.items()})
        for number in range(5):
            turns = tuple(("who?", "they") for _ in range(number))
            later = replace(QUESTION, prompt=f"{number}?" if turns else "who?", history=turns)
            await device.ask(later)
        after = Counter({name: host.answered for name, host in hosts.items()})
        assert sorted((after - before).values()) == [5]


@pytest.mark.parametrize("how", [DRAGON, SpeculativeSettings()])
def test_an_answer_goes_on_at_the_next_host_and_no_token_changes(how: Settings) -> None:
    async def ask(*, kill: bool) -> list[Answer]:
        hosts = {name: Host.holding() for name in "abc"}
        async with device_of(**hosts) as device:
            found = []
            for number in range(3):
                question = replace(QUESTION, prompt=f"who is {number}?")
                peer = device.hosts.for_answer(question).peer
                assert peer is not None
                at = {each.peer: name for name, each in device.hosts.connectors.items()}[peer]
                victim = hosts[at] if kill and number < 2 else None
                found.append(await device.ask(question, how, victim))
            assert sum(host.answered for host in hosts.values()) == (5 if kill else 3)
            return found

    whole = run(ask(kill=False))
    resumed = run(ask(kill=True))
    assert [each.tokens for each in resumed] == [each.tokens for each in whole]
    assert not any(map(alone, resumed))
    assert not any(each.notices for each in resumed)


@pytest.mark.parametrize("from_the_start", [True, False])
def test_a_host_that_falls_silent_is_left_for_one_that_is_heard(*, from_the_start: bool) -> None:
    async def ask(*, muffle: bool) -> Answer:
        hosts = {name: Host.holding() for name in "abc"}
        async with device_of(**hosts) as device:
            peer = device.hosts.for_answer(QUESTION).peer
            at = {each.peer: name for name, each in device.hosts.connectors.items()}
            host = hosts[at[peer]]
            host.silent = muffle and from_the_start
            answer = await device.ask(muffle=host if muffle else None)
            assert sum(host.answered for host in hosts.values()) == 1 + muffle
            return answer

    whole, moved = run(ask(muffle=False)), run(ask(muffle=True))
    assert moved.tokens == whole.tokens
    assert not alone(moved)
    assert not moved.notices


@virtual
async def test_without_any_host_the_device_goes_on_alone_and_comes_back() -> None:
    hosts = {name: Host.holding() for name in "ab"}
    async with device_of(**hosts) as device:
        for host in hosts.values():
            await host.kill()
        assert alone(await device.ask())
        hosts["b"].reachable = True
        assert not alone(await device.ask())


@virtual
async def test_a_host_that_has_something_else_is_refused_by_name_and_not_used() -> None:
    hosts = {"a": Host.holding("x"), "b": Host.holding("y"), "c": Host.holding("x")}
    async with device_of(**hosts) as device:
        (notice,) = device.told
        assert notice.kind is NoticeKind.UNLIKE
        assert " b " in notice.text
        for number in range(30):
            await device.ask(replace(QUESTION, prompt=f"{number}?", max_tokens=1))
        assert hosts["b"].answered == 0
        await hosts["a"].kill()
        await hosts["c"].kill()
        assert alone(await device.ask()), "it is not used for want of others, either"
        assert hosts["b"].answered == 0


@virtual
async def test_hosts_that_change_one_after_the_other_are_used_on() -> None:
    hosts = {name: Host.holding("old") for name in "ab"}
    async with device_of(**hosts) as device:
        for name in "ab":
            hosts[name].side.corpus = "new"
            await hosts[name].cloud.kill()
            await asyncio.sleep(2 * USUAL.longest_back_off_s)
        # b came back with what a was refused for, and then alone held what was asked for.
        assert len(device.told) == 1
        assert not alone(await device.ask())


@virtual
async def test_a_busy_host_sends_the_answer_to_the_next() -> None:
    tight = CloudLimits(device_answers=1)
    hosts = {name: Host.holding(limits=tight) for name in "ab"}
    async with device_of(**hosts) as device:
        answers = await asyncio.gather(*(device.ask() for _ in range(2)))
        assert sorted(host.answered for host in hosts.values()) == [1, 1]
        assert not any(map(alone, answers))
        assert answers[0].tokens == answers[1].tokens


@virtual
async def test_one_host_of_several_is_enough_to_begin() -> None:
    gone, there = Host.holding(), Host.holding()
    gone.reachable = False
    async with device_of(gone=gone, there=there) as device:
        assert device.told[0].kind is NoticeKind.UNREACHED
        assert not alone(await device.ask())
    there.reachable = False
    with pytest.raises(DragonError) as error:
        async with device_of(gone=gone, there=there):
            pass
    assert isinstance(error.value.__cause__, LinkError)
