"""A cloud and its devices in one process: the real runtime on simulated models and links.

Everything from the stream up is the code that two real processes run: connections, peers,
sessions, generations. Use it inside `dragonrt.testing.loop.run`.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from dragonrt.control.profiler import DecodeProfile
from dragonrt.errors import DragonError
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.memory import memory_streams
from dragonrt.link.models import Jitter
from dragonrt.link.stream import Stream
from dragonrt.modes.mode import Prepared
from dragonrt.modes.question import Question
from dragonrt.modes.registry import Resources
from dragonrt.modes.settings import Settings
from dragonrt.node.answer import OnRecord
from dragonrt.node.backend_session import BackendSession, PrefillResult
from dragonrt.node.citing import Passage
from dragonrt.node.client_session import ClientSession
from dragonrt.node.gatekeeper import USUAL_LIMITS, CloudLimits, Gatekeeper
from dragonrt.node.hosts import Connector, Hosts
from dragonrt.node.peer import ConnectionLostError, Peer
from dragonrt.side import Side
from dragonrt.testing.faults import Cut, CutStream, DeafStream, HalfOpen, Stall, StallingLink
from dragonrt.testing.schedule import Schedule
from dragonrt.testing.scripted import Script, ScriptedModel, SimulatedContext, SimulatedModel
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces.file import Recorder, Sink
from dragonrt.wire.connection import Connection
from dragonrt.wire.limits import NONCE_BYTES
from dragonrt.wire.messages import PROTOCOL_VERSION, Hello
from dragonrt.wire.reasons import BusyError, HandshakeError

MakeModel = Callable[[Side, Script], SimulatedModel]
"""Makes the model of one side for one answer."""


@dataclass(slots=True)
class SimulatedSide:
    """Implements Prefiller: `script` gives the distributions that answer a question.

    `documents` gives the tokens of its documents. Retrieval and prefill take `prepare_s`, a forward
    `decode_s`, on average. `sinks` receive every event.
    """

    side: Side
    script: Callable[[str], Script]
    seed: int = 0
    prepare_s: float = 0.0
    decode_s: float = 0.02
    make_model: MakeModel = ScriptedModel
    make_context: Callable[[SimulatedModel, Callable[[], float]], BackendSession] = SimulatedContext
    sinks: tuple[Sink, ...] = ()
    keeps_inputs: bool = False
    share_sources: bool = True
    profile: DecodeProfile | None = None
    timeouts: Timeouts = USUAL
    corpus: str = "unknown"
    documents: Callable[[str], Sequence[Sequence[int]]] = lambda prompt: ()
    prepared: int = 0

    @property
    def vocabulary(self) -> int:
        return self.script("").vocabulary

    @property
    def recorder(self) -> Recorder:
        clock = asyncio.get_running_loop().time
        return Recorder(clock, self.side, self.sinks, keeps_inputs=self.keeps_inputs)

    async def prepare(self, question: Question, *, verifies: bool) -> PrefillResult:
        self.prepared += 1
        delays = random.Random(f"{self.seed} {self.side} {self.prepared}")
        await asyncio.sleep(self.prepare_s * delays.uniform(0.2, 2))
        model = self.make_model(self.side, self.script(question.prompt))
        context = self.make_context(model, lambda: self.decode_s * delays.uniform(0.2, 2))
        passage = Passage(f"what the {self.side} knows", f"{self.side}.txt", 1.0)
        length, grounds = len(question.prompt), Prepared(texts=self.documents(question.prompt))
        return PrefillResult(context, grounds, (passage,), length, 0.0, self.prepare_s)

    def connection(self) -> Connection:
        """This side of a fresh connection."""
        hello = Hello(
            version=PROTOCOL_VERSION,
            nonce=self.side.encode().ljust(NONCE_BYTES),
            role=self.side,
            tokenizer="simulated",
            vocabulary=self.vocabulary,
            model="simulated",
            software="dragonrt",
            corpus=self.corpus,
        )
        return Connection(self.side, hello)


class SimulatedCloud:
    """Serves devices until it is closed; `refused` are the lines of failed handshakes."""

    def __init__(self, side: SimulatedSide, limits: CloudLimits = USUAL_LIMITS) -> None:
        self.side = side
        self.gatekeeper = Gatekeeper(side, limits)
        self.refused: list[str] = []
        self._connections: dict[asyncio.Task[None], Peer] = {}

    @property
    def sessions(self) -> int:
        """Sessions that are open on living connections."""
        return sum(len(peer.connection.sessions) for peer in self._connections.values())

    @property
    def connections(self) -> int:
        """Connections that are not over, the ones in their handshake included."""
        return len(self._connections)

    def accept(self, stream: Stream) -> None:
        """Serve one connection in a task of its own."""
        recorder = self.side.recorder.of(stream.peer_name)
        serves, timeouts = self.gatekeeper.answering, self.side.timeouts
        peer = Peer(stream, self.side.connection(), recorder, serves, timeouts)
        task = asyncio.create_task(self._serve(peer), name=f"connection from {stream.peer_name}")
        self._connections[task] = peer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, peer: Peer) -> None:
        try:
            await peer.handshake()
        except (HandshakeError, ConnectionLostError) as error:
            self.refused.append(str(error))
            return
        try:
            with self.gatekeeper.inside(peer):
                await peer.run()
        except BusyError as error:
            await peer.refuse(error)

    async def wait_idle(self) -> None:
        """Wait until every connection is over, however it ended."""
        while self._connections:
            await asyncio.wait(self._connections)

    async def kill(self) -> None:
        """End all connections as the end of the process does."""
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class SimulatedDevice:
    """A device that is connected to its other sides."""

    side: SimulatedSide
    connectors: Mapping[str, Hosts]

    @property
    def connector(self) -> Hosts:
        """The connection to the cloud."""
        return self.connectors["cloud"]

    def asking(
        self,
        question: Question,
        settings: Settings,
        resources: Resources | None = None,
        on_record: OnRecord = lambda record: None,
    ) -> ClientSession:
        """An answer that can be asked for."""
        resources = resources or Resources(
            vocabulary=self.side.vocabulary, timeouts=self.side.timeouts
        )
        return ClientSession(self.side, self.connectors, question, settings, resources, on_record)


@dataclass(frozen=True, slots=True)
class Link:
    """A device's way to one cloud; `on_fault` hears until what time each fault lasts."""

    cloud: SimulatedCloud
    schedule: Schedule
    on_fault: Callable[[float], None] = lambda until_s: None


@asynccontextmanager
async def faulty_device(
    side: SimulatedSide, links: Mapping[str, Link]
) -> AsyncIterator[SimulatedDevice]:
    """The device `side` on a link to each of its clouds, by their names, until the context ends.

    A first connection that ends in its handshake, by a fault of the schedule or by one end of the
    cloud's process, is made again, as a user would.
    """

    async def connected(name: str, link: Link) -> Hosts:
        dialled = 0
        recorder = side.recorder.of(name) if len(links) > 1 else side.recorder

        async def dial() -> Peer:
            nonlocal dialled
            number, dialled = dialled, dialled + 1
            stream = _stream(link, number)
            return Peer(stream, side.connection(), recorder, timeouts=side.timeouts)

        hosts = Hosts({name: Connector(dial, side.timeouts)})
        while not hosts.connected:
            try:
                await hosts.connect()
            except DragonError:
                if dialled > len(link.schedule.faults) + 1:
                    raise
        return hosts

    made = await asyncio.gather(*(connected(name, link) for name, link in links.items()))
    async with kept(*made):
        yield SimulatedDevice(side, dict(zip(links, made, strict=True)))


@asynccontextmanager
async def linked_device(
    cloud: SimulatedCloud, side: SimulatedSide, emulate: Callable[[Stream], Stream]
) -> AsyncIterator[SimulatedDevice]:
    """The device `side` on a link that does not fail, until the context ends."""

    async def dial() -> Peer:
        ours, theirs = memory_streams()
        cloud.accept(theirs)
        return Peer(emulate(ours), side.connection(), side.recorder, timeouts=side.timeouts)

    hosts = Hosts({"cloud": Connector(dial, side.timeouts)})
    await hosts.connect()
    async with kept(hosts):
        yield SimulatedDevice(side, {"cloud": hosts})


@asynccontextmanager
async def kept(*links: Hosts) -> AsyncIterator[None]:
    """Make the connections again whenever they are lost, until the context ends."""
    keepers = [asyncio.create_task(each.run(), name="connector") for each in links]
    try:
        yield
    finally:
        await asyncio.sleep(0)  # a task that is cancelled before it has begun closes nothing
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)


def _stream(link: Link, number: int) -> Stream:
    """The device's end of its connection of that number; the other end goes to the cloud."""
    schedule, now_s = link.schedule, asyncio.get_running_loop().time()
    fault = schedule.faults[number] if number < len(schedule.faults) else None
    ours, theirs = memory_streams((f"device {schedule.seed}.{number}", "cloud"))
    match fault:
        case Cut():
            on_cut = partial(_tell_now, link)
            if fault.side == "device":
                ours = CutStream(ours, fault, on_cut)
            else:
                theirs = CutStream(theirs, fault, on_cut)
        case HalfOpen():
            link.on_fault(now_s + fault.after_s)
            if "device" in fault.deaf:
                ours = DeafStream(ours, fault.after_s)
            if "cloud" in fault.deaf:
                theirs = DeafStream(theirs, fault.after_s)
        case Stall():
            link.on_fault(now_s + fault.start_s + fault.length_s)
    link.cloud.accept(theirs)
    stall = fault if isinstance(fault, Stall) else None
    models = (
        StallingLink(
            stall,
            latency_s=schedule.latency_s,
            jitter=Jitter("uniform", schedule.jitter_s),
            bandwidth=schedule.bandwidth,
            seed=schedule.seed + number,
            direction=direction,
        )
        for direction in ("up", "down")
    )
    return EmulatedStream(ours, *models)


def _tell_now(link: Link) -> None:
    link.on_fault(asyncio.get_running_loop().time())
