"""A cloud and its devices in one process: the real runtime on simulated models and links.

Everything from the stream up is the code that two real processes run: connections, peers,
sessions, generations. Use it inside `dragonrt.simulation.loop.run`.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from dragonrt.errors import DragonError
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.memory import memory_streams
from dragonrt.link.models import Jitter
from dragonrt.link.stream import Stream
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.drafter import Drafter
from dragonrt.runtime.modes.dragon import Asking, OnLoss
from dragonrt.runtime.modes.serving import answerer
from dragonrt.runtime.outcome import Turn
from dragonrt.runtime.peer import ConnectionLostError, Peer
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.predictor import Predictor
from dragonrt.runtime.preparing import Grounding, Prepared
from dragonrt.runtime.profiler import DecodeProfile
from dragonrt.runtime.trace import NoTrace, Trace
from dragonrt.side import Side
from dragonrt.simulation.drafter import Script, SimulatedDrafter, SimulatedPredictor
from dragonrt.simulation.faults import Cut, CutStream, Stall, StallingLink
from dragonrt.simulation.schedule import Schedule
from dragonrt.wire.connection import Connection
from dragonrt.wire.errors import HandshakeError
from dragonrt.wire.limits import NONCE_BYTES
from dragonrt.wire.messages import PROTOCOL_VERSION, Hello, Source

T = TypeVar("T")

MakeDrafter = Callable[[Side, Plan, Script, Callable[[], float]], Drafter]
"""Makes the model of one side and answer; the last argument draws the seconds of each forward."""

MakePredictor = Callable[[Side, Script, Callable[[], float]], Predictor]
"""The same for modes with blocks."""


@dataclass(slots=True)
class SimulatedSide:
    """Implements Preparer: `script` gives the distributions that answer a question.

    Retrieval and prefill take `prepare_s`, a forward `decode_s`, on average.
    """

    side: Side
    script: Callable[[str], Script]
    seed: int = 0
    prepare_s: float = 0.0
    decode_s: float = 0.02
    make_drafter: MakeDrafter = SimulatedDrafter
    make_predictor: MakePredictor = SimulatedPredictor
    trace: Trace = field(default_factory=NoTrace)
    share_sources: bool = True
    profile: DecodeProfile | None = None
    prepared: int = 0

    @property
    def vocabulary(self) -> int:
        return self.script("").vocabulary

    async def prepare(
        self, question: str, history: Sequence[Turn], plan: Plan
    ) -> Prepared[Drafter]:
        delay_s = await self._prepare()
        return self._prepared(
            self.make_drafter(self.side, plan, self.script(question), delay_s), question
        )

    async def prepare_predictor(
        self, question: str, history: Sequence[Turn], plan: Grounding
    ) -> Prepared[Predictor]:
        delay_s = await self._prepare()
        return self._prepared(
            self.make_predictor(self.side, self.script(question), delay_s), question
        )

    async def off_loop(self, job: Callable[[], T]) -> T:
        return job()

    async def _prepare(self) -> Callable[[], float]:
        """Pass the time; what draws the seconds of each forward."""
        self.prepared += 1
        delays = random.Random(f"{self.seed} {self.side} {self.prepared}")
        await asyncio.sleep(self.prepare_s * delays.uniform(0.2, 2))
        return lambda: self.decode_s * delays.uniform(0.2, 2)

    def _prepared(self, model: T, question: str) -> Prepared[T]:
        source = Source(f"what the {self.side} knows", f"{self.side}.txt", 1.0)
        return Prepared(model, (source,), len(question), 0.0, self.prepare_s)

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
        )
        return Connection(self.side, hello)


class SimulatedCloud:
    """Serves devices until it is closed; `refused` are the lines of failed handshakes."""

    def __init__(self, side: SimulatedSide) -> None:
        self.side = side
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
        trace = self.side.trace.of(stream.peer_name)
        peer = Peer(stream, self.side.connection(), trace, answerer(self.side))
        task = asyncio.create_task(self._serve(peer), name=f"connection from {stream.peer_name}")
        self._connections[task] = peer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, peer: Peer) -> None:
        try:
            await peer.handshake()
        except (HandshakeError, ConnectionLostError) as error:
            self.refused.append(str(error))
            return
        await peer.run()

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
    """A device that is connected to a cloud; made by `simulated_device`."""

    side: SimulatedSide
    connector: Connector

    def asking(
        self,
        plan: Plan,
        on_loss: OnLoss = "alone",
        on_token: Callable[[int], None] = lambda token: None,
    ) -> Asking:
        """An answer that can be asked for; its notices are in the Answer."""
        return Asking(
            self.side,
            self.connector,
            plan,
            on_decision=lambda decision: on_token(decision.token),
            on_notice=lambda text: None,
            on_loss=on_loss,
        )


@asynccontextmanager
async def simulated_device(
    cloud: SimulatedCloud,
    schedule: Schedule,
    script: Callable[[str], Script],
    make_drafter: MakeDrafter = SimulatedDrafter,
) -> AsyncIterator[SimulatedDevice]:
    """A device on its own link to `cloud`, until the context ends.

    A first connection that ends in its handshake, by a fault of the schedule or by one end of the
    cloud's process, is made again, as a user would.
    """
    side = SimulatedSide(
        "device",
        script,
        schedule.seed,
        schedule.device_prepare_s,
        schedule.device_decode_s,
        make_drafter,
    )
    dialled = 0

    async def dial() -> Peer:
        nonlocal dialled
        number, dialled = dialled, dialled + 1
        return Peer(_link(cloud, schedule, number), side.connection(), side.trace)

    connector = Connector(dial)
    while not connector.connected:
        try:
            await connector.connect()
        except DragonError:
            if dialled > len(schedule.faults) + 1:
                raise
    keeper = asyncio.create_task(connector.run(), name="connector")
    try:
        yield SimulatedDevice(side, connector)
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)


@asynccontextmanager
async def linked_device(
    cloud: SimulatedCloud, side: SimulatedSide, emulate: Callable[[Stream], Stream]
) -> AsyncIterator[SimulatedDevice]:
    """The device `side` on a link that does not fail, until the context ends."""

    async def dial() -> Peer:
        ours, theirs = memory_streams()
        cloud.accept(theirs)
        return Peer(emulate(ours), side.connection(), side.trace)

    connector = Connector(dial)
    await connector.connect()
    keeper = asyncio.create_task(connector.run(), name="connector")
    try:
        yield SimulatedDevice(side, connector)
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)


def simulated_cloud(
    schedule: Schedule,
    script: Callable[[str], Script],
    make_drafter: MakeDrafter = SimulatedDrafter,
    trace: Trace | None = None,
) -> SimulatedCloud:
    """A cloud as slow as the schedule says."""
    return SimulatedCloud(
        SimulatedSide(
            "cloud",
            script,
            schedule.seed,
            schedule.cloud_prepare_s,
            schedule.cloud_decode_s,
            make_drafter,
            trace=trace or NoTrace(),
        )
    )


def _link(cloud: SimulatedCloud, schedule: Schedule, number: int) -> Stream:
    """The device's end of its connection of that number; the other end goes to the cloud."""
    fault = schedule.faults[number] if number < len(schedule.faults) else None
    ours, theirs = memory_streams((f"device {schedule.seed}.{number}", "cloud"))
    if isinstance(fault, Cut):
        if fault.side == "device":
            ours = CutStream(ours, fault)
        else:
            theirs = CutStream(theirs, fault)
    cloud.accept(theirs)
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
