"""A cloud and its devices in one process: the real runtime on simulated models and links.

The connections, sessions and modes are those of real processes. Use it inside `testing.loop.run`.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count

from dragonrt.control.scheduler import DecodeProfile
from dragonrt.errors import DragonError
from dragonrt.link.emulation import EmulatedStream, memory_streams
from dragonrt.link.models import Jitter
from dragonrt.link.stream import Stream
from dragonrt.modes import entry_of
from dragonrt.modes.mode import Prepared
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Resources, Settings
from dragonrt.node.answers.citing import Passage
from dragonrt.node.answers.client_session import ClientSession
from dragonrt.node.answers.driver import OnRecord
from dragonrt.node.answers.model_session import BackendSession, PrefillResult
from dragonrt.node.answers.server_session import admission
from dragonrt.node.connections.admission import USUAL_LIMITS, CloudLimits
from dragonrt.node.connections.connector import Connector, kept
from dragonrt.node.connections.peer import ConnectionLostError, Peer
from dragonrt.side import SIDES, Side
from dragonrt.testing.faults import (
    Cut,
    CutStream,
    DeafStream,
    HalfOpen,
    Schedule,
    Stall,
    StallingLink,
)
from dragonrt.testing.scripted import (
    COUNTERPART,
    Script,
    ScriptedModel,
    ScriptedParts,
    SimulatedContext,
    SimulatedModel,
)
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces.file import Recorder, Sink
from dragonrt.wire.connection import Connection
from dragonrt.wire.fields import NONCE_BYTES
from dragonrt.wire.messages import PROTOCOL_VERSION, Hello
from dragonrt.wire.reasons import BusyError, HandshakeError


@dataclass(slots=True)
class SimulatedSide(ScriptedParts):
    """A device or cloud with simulated models, instead of one that loads models and documents.

    `script(prompt)` returns the model's Script, `documents(prompt)` the documents' tokens.
    To prepare takes about `prepare_s` seconds, a forward `decode_s`; `sinks` get trace records.
    """

    side: Side
    script: Callable[[str], Script]
    seed: int = 0
    prepare_s: float = 0.0
    decode_s: float = 0.02
    make_model: Callable[[Side, Script], SimulatedModel] = ScriptedModel
    make_context: Callable[[SimulatedModel, Callable[[], float]], BackendSession] = SimulatedContext
    sinks: tuple[Sink, ...] = ()
    share_sources: bool = True
    profile: DecodeProfile | None = None
    timeouts: Timeouts = USUAL
    documents: Callable[[str], Sequence[Sequence[int]]] = lambda prompt: ()
    prepared: int = 0

    @property
    def vocabulary(self) -> int:
        return self.script("").vocabulary

    @property
    def recorder(self) -> Recorder:
        return Recorder(asyncio.get_running_loop().time, self.side, self.sinks)

    async def prepare(self, question: Question, **how: object) -> PrefillResult:
        """Wait about `prepare_s` seconds and return a simulated context. `how` has no effect."""
        self.prepared += 1
        delays = random.Random(f"{self.seed} {self.side} {self.prepared}")
        await asyncio.sleep(self.prepare_s * delays.uniform(0.2, 2))
        model = self.make_model(self.side, self.script(question.prompt))
        context = self.make_context(model, lambda: self.decode_s * delays.uniform(0.2, 2))
        passage = Passage(f"what the {self.side} knows", f"{self.side}.txt", 1.0)
        length, grounds = len(question.prompt), Prepared(texts=self.documents(question.prompt))
        return PrefillResult(context, grounds, (passage,), length, 0.0, self.prepare_s)

    def connection(self) -> Connection:
        hello = Hello(
            version=PROTOCOL_VERSION,
            nonce=self.side.encode().ljust(NONCE_BYTES),
            role=self.side,
            tokenizer="simulated",
            vocabulary=self.vocabulary,
            model="simulated",
            software="dragonrt",
        )
        return Connection(self.side, hello)


class SimulatedCloud:
    """A cloud with simulated models. It serves each device whose stream is given to `accept`."""

    def __init__(self, side: SimulatedSide, limits: CloudLimits = USUAL_LIMITS) -> None:
        self.side = side
        self.admission = admission(side, limits)
        self._connections: dict[asyncio.Task[None], Peer] = {}

    @property
    def sessions(self) -> int:
        return sum(len(peer.connection.sessions) for peer in self._connections.values())

    def accept(self, stream: Stream) -> None:
        recorder = self.side.recorder.of(stream.peer_name)
        serves, timeouts = self.admission.answering, self.side.timeouts
        peer = Peer(stream, self.side.connection(), recorder, serves, timeouts)
        task = asyncio.create_task(self._serve(peer), name=f"connection from {stream.peer_name}")
        self._connections[task] = peer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, peer: Peer) -> None:
        with suppress(HandshakeError, ConnectionLostError):
            await peer.handshake()
            try:
                with self.admission.admit(peer):
                    await peer.run()
            except BusyError as error:
                await peer.refuse(error)

    async def wait_idle(self) -> None:
        """Wait until all connections have ended, normally or not."""
        while self._connections:
            await asyncio.wait(self._connections)

    async def kill(self) -> None:
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class SimulatedDevice:
    """A device with simulated models and links; `asking` returns a session to answer a question."""

    side: SimulatedSide
    connectors: Mapping[str, Connector]

    @property
    def connector(self) -> Connector:
        return self.connectors["cloud"]

    def asking(
        self,
        question: Question,
        settings: Settings,
        resources: Resources | None = None,
        on_record: OnRecord = lambda record: None,
    ) -> ClientSession:
        if resources is None:
            others = dict.fromkeys(self.connectors, COUNTERPART)
            resources = entry_of(settings).prepare(self.side, others, settings)
        return ClientSession(self.side, self.connectors, question, settings, resources, on_record)


@dataclass(frozen=True, slots=True)
class Link:
    """A device's simulated link to one cloud. Its faults happen by `schedule`.

    `on_fault` gets the loop's time of a Cut, of the start of a HalfOpen, or of the end of a Stall.
    """

    cloud: SimulatedCloud
    schedule: Schedule
    on_fault: Callable[[float], None] = lambda until_s: None


@asynccontextmanager
async def faulty_device(
    side: SimulatedSide, links: Mapping[str, Link]
) -> AsyncIterator[SimulatedDevice]:
    """Yield a device that is connected to each cloud of `links`, with the faults of its Schedule.

    A first connection that fails, by a fault or because the cloud's process ends once, is tried
    again. The keys of `links` are the clouds' names. The end of the context closes all connections.
    """

    async def connected(name: str, link: Link) -> Connector:
        numbers = count()
        recorder = side.recorder.of(name) if len(links) > 1 else side.recorder
        connector = _connector(side, lambda: _stream(link, next(numbers)), recorder)
        for _ in range(len(link.schedule.faults) + 1):
            with suppress(DragonError):
                await connector.connect()
                return connector
        await connector.connect()
        return connector

    made = await asyncio.gather(*(connected(name, link) for name, link in links.items()))
    async with kept(*made):
        yield SimulatedDevice(side, dict(zip(links, made, strict=True)))


@asynccontextmanager
async def linked_device(
    cloud: SimulatedCloud, side: SimulatedSide, emulate: Callable[[Stream], Stream]
) -> AsyncIterator[SimulatedDevice]:
    """Yield a device connected to `cloud` in memory; `emulate` adds a link's delays to a stream."""

    def stream() -> Stream:
        ours, theirs = memory_streams()
        cloud.accept(theirs)
        return emulate(ours)

    connector = _connector(side, stream, side.recorder)
    await connector.connect()
    async with kept(connector):
        yield SimulatedDevice(side, {"cloud": connector})


def _connector(side: SimulatedSide, stream: Callable[[], Stream], recorder: Recorder) -> Connector:
    async def dial() -> Peer:
        return Peer(stream(), side.connection(), recorder, timeouts=side.timeouts)

    return Connector(dial, side.timeouts)


def _stream(link: Link, number: int) -> Stream:
    """The device's end of its connection of that number; the other end goes to the cloud."""
    schedule, time_s = link.schedule, asyncio.get_running_loop().time
    fault = schedule.faults[number] if number < len(schedule.faults) else None
    ends: dict[Side, Stream] = dict(
        zip(SIDES, memory_streams((f"device {schedule.seed}.{number}", "cloud")), strict=True)
    )
    match fault:
        case Cut(side=side):
            ends[side] = CutStream(ends[side], fault, lambda: link.on_fault(time_s()))
        case HalfOpen(deaf, after_s):
            link.on_fault(time_s() + after_s)
            ends |= {side: DeafStream(ends[side], after_s) for side in deaf}
        case Stall(start_s, length_s):
            link.on_fault(time_s() + start_s + length_s)
    link.cloud.accept(ends["cloud"])
    models = (
        StallingLink(
            fault if isinstance(fault, Stall) else None,
            latency_s=schedule.latency_s,
            jitter=Jitter("uniform", schedule.jitter_s),
            bandwidth=schedule.bandwidth,
            seed=schedule.seed + number,
            direction=direction,
        )
        for direction in ("up", "down")
    )
    return EmulatedStream(ends["device"], *models)
