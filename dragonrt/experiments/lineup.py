"""All ways of answering side by side (SPEC 1.6): the baselines, DRAGON as published, and ours.

The same questions, models, documents and link for each, in real time over real processes or with
real models in virtual time.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

from dragonrt import bundled
from dragonrt.experiments.baselines.cloud import serve_baselines
from dragonrt.experiments.baselines.connection import baselines_process, connected_baselines
from dragonrt.experiments.baselines.device import BASELINES, Asked, BaselineDevice
from dragonrt.experiments.baselines.messages import Channel
from dragonrt.experiments.baselines.reading import RELEVANCE_TEMPERATURE, BaselineSide
from dragonrt.experiments.baselines.server import baseline_side
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.experiments.comparison import (
    ALGORITHM1_GREEDY,
    COUPLED_GREEDY,
    LEADERLESS,
    SYNCHRONOUS,
    Method,
    Pair,
)
from dragonrt.experiments.device_side import DeviceSide, sample_settings
from dragonrt.experiments.paced import PacedDrafter, PacedWorker
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.memory import memory_streams
from dragonrt.link.models import LinkModel
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.endpoints import Address
from dragonrt.runtime.local_side import LocalSide
from dragonrt.runtime.modes.dragon import Answer
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.process import open_library
from dragonrt.runtime.trace import Trace
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.simulation.drafter import Script
from dragonrt.simulation.pair import (
    SimulatedCloud,
    SimulatedDevice,
    SimulatedSide,
    linked_device,
    simulated_cloud,
    simulated_device,
)
from dragonrt.simulation.schedule import Schedule

DRDG_TW, DRAGON = "DRDG/TW", "DRAGON"
COUPLED, OURS = "coupled, greedy", "coupled, leaderless"
METHODS: dict[str, Method] = {
    DRDG_TW: SYNCHRONOUS,
    DRAGON: ALGORITHM1_GREEDY,
    COUPLED: COUPLED_GREEDY,
    OURS: LEADERLESS,
}
"""The ways in which the sides aggregate as in an ordinary answer; DRAGON is Algorithm 1, greedy."""

ALL = (*BASELINES, *METHODS)
OVER_A_NETWORK = ("CRCG/device", *METHODS)
"""What an ordinary cloud can be asked: the other baselines want more of it than drafts."""

BANDWIDTH = 50e6
"""Bits per second in each direction, as on DRAGON's 2.4 GHz wireless network."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one answer cost, from the question on; acceptance is None where nobody drafts."""

    first_ms: float
    total_ms: float
    wire_bytes: int
    accepted_device: float | None = None
    accepted_cloud: float | None = None


@dataclass(frozen=True, slots=True)
class Lineup:
    """Everything that can be asked over one link."""

    baselines: BaselineDevice
    aggregate: Callable[[Method, Asked], Awaitable[Answer]]

    async def ask(self, name: str, asked: Asked) -> Sample:
        """One answer by the method of that name, one of `ALL`."""
        if name in METHODS:
            return _sample(await self.aggregate(METHODS[name], asked))
        answer = await self.baselines.ask(name, asked)
        first_s, last_s = answer.times_s[0], answer.times_s[-1]
        return Sample(
            1000 * (first_s - answer.asked_s), 1000 * (last_s - answer.asked_s), answer.wire_bytes
        )


def _sample(answer: Answer) -> Sample:
    counts, first, last = answer.counts, answer.decisions[0], answer.decisions[-1]
    return Sample(
        1000 * (first.time_s - answer.asked_s),
        1000 * (last.time_s - answer.asked_s),
        answer.bytes_sent + answer.bytes_received,
        counts.own_accepted / counts.own_compared if counts.own_compared else None,
        counts.other_accepted / counts.other_compared if counts.other_compared else None,
    )


def _link(extra_round_trip_s: float, seed: int) -> tuple[LinkModel, LinkModel]:
    """Half of the extra round trip in each direction, jitter a fifth of it (DRAGON §7.2)."""
    one_way_s = extra_round_trip_s / 2
    profile = LinkProfile(latency_s=one_way_s, jitter_s=one_way_s / 5, up=BANDWIDTH, down=BANDWIDTH)
    return profile.models("device", seed)


@dataclass(frozen=True, slots=True)
class RealProcesses:
    """This process as the device, and two more on loopback: a cloud, and the baselines' cloud."""

    device: DeviceSide
    cloud_port: int
    baselines_port: int

    @asynccontextmanager
    async def lineup(self, extra_round_trip_s: float, seed: int) -> AsyncIterator[Lineup]:
        """Connected to both over links of the same kind."""

        def emulate(stream: Stream) -> Stream:
            return EmulatedStream(stream, *_link(extra_round_trip_s, seed))

        async with (
            self.device.connected(self.cloud_port, emulate) as (side, connector),
            connected_baselines(side, self.baselines_port, emulate) as baselines,
        ):
            yield Lineup(baselines, _aggregate(side, connector))


@asynccontextmanager
async def network_lineup(
    device: DeviceSide, address: Address
) -> AsyncIterator[tuple[Lineup, Connector]]:
    """Connected to an ordinary cloud at `address`: only `OVER_A_NETWORK` can be asked."""
    async with device.connected_to(address) as (side, connector):
        unused, _ = memory_streams()  # the device alone sends nothing
        alone = BaselineDevice(baseline_side(side), Channel(unused))
        yield Lineup(alone, _aggregate(side, connector)), connector


def _aggregate(
    side: LocalSide, connector: Connector
) -> Callable[[Method, Asked], Awaitable[Answer]]:
    async def aggregate(method: Method, asked: Asked) -> Answer:
        pair = Pair(side, connector, _plan(asked))
        return await pair.ask_long(method, asked.question, asked.tokens)

    return aggregate


def _plan(asked: Asked) -> Plan:
    return Plan(asked.seed, Sampler(asked.temperature), documents=asked.documents)


@contextmanager
def real_processes(model: str = bundled.models()[0]) -> Iterator[RealProcesses]:
    """Two processes with the cloud's sample documents, and this one with the device's."""
    documents = str(bundled.documents("cloud"))
    with cloud_process("--model", model, "--documents", documents) as cloud:
        device = DeviceSide.load(sample_settings("device", model))
        port = cloud.wait_ready()  # the index is complete: the other process only opens it
        with baselines_process(model) as baselines:
            yield RealProcesses(device, port, baselines.wait_ready())


class PacedModels:
    """Both sides' real models and documents in this process, decoding at a given pace."""

    def __init__(self, decode_s: float, questions: Sequence[str]) -> None:
        self._decode_s = decode_s
        self._questions = list(questions)
        device = DeviceSide.load(sample_settings("device"))
        self._model = device.model
        self._libraries = {
            "device": device.library,
            "cloud": open_library(sample_settings("cloud"), device.model)[0],
        }

    def _side(self, side: Side) -> BaselineSide:
        library = self._libraries[side]
        if library is None:
            raise ValueError("the sample documents make a library")
        worker, librarian = PacedWorker(self._decode_s), PacedWorker(0.0)
        return BaselineSide(side, self._model, library, worker, librarian)

    @asynccontextmanager
    async def lineup(self, extra_round_trip_s: float, seed: int) -> AsyncIterator[Lineup]:
        """Both connections, over emulated links; used in virtual time."""
        ours, theirs = memory_streams()
        channel = Channel(EmulatedStream(ours, *_link(extra_round_trip_s, seed)))
        serving = asyncio.create_task(serve_baselines(theirs, self._side("cloud")))
        schedule = Schedule(
            seed,
            latency_s=extra_round_trip_s / 2,
            jitter_s=extra_round_trip_s / 10,
            bandwidth=BANDWIDTH,
            device_prepare_s=self._decode_s,
            cloud_prepare_s=self._decode_s,
        )
        cloud = simulated_cloud(schedule, self._script, self._drafter)
        try:
            await channel.greet(self._model.document_fingerprint)
            async with simulated_device(cloud, schedule, self._script, self._drafter) as device:

                async def aggregate(method: Method, asked: Asked) -> Answer:
                    plan = replace(method.plan(_plan(asked)), max_tokens=asked.tokens)
                    return await device.asking(plan, "wait").ask(asked.question)

                yield Lineup(BaselineDevice(self._side("device"), channel), aggregate)
        finally:
            await channel.close()
            await serving
            await cloud.wait_idle()

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """What ends an answer."""
        return tuple(self._model.stop_tokens)

    @asynccontextmanager
    async def pair(self, trace: Trace) -> AsyncIterator[SimulatedDevice]:
        """Both sides without any link between them; what the device does goes to `trace`."""
        cloud = SimulatedCloud(SimulatedSide("cloud", self._script, make_drafter=self._drafter))
        side = SimulatedSide("device", self._script, make_drafter=self._drafter, trace=trace)
        async with linked_device(cloud, side, lambda stream: stream) as device:
            yield device
        await cloud.wait_idle()

    def _script(self, question: str) -> Script:
        """Stands for a question: its number is the seed."""
        number = self._questions.index(question) if question else 0
        return Script(number, vocabulary=self._model.vocabulary)

    def _drafter(
        self, side: Side, plan: Plan, script: Script, delay_s: Callable[[], float]
    ) -> PacedDrafter:
        question = self._questions[script.seed]
        library, model = self._side(side).library, self._model
        hits = library.find(question, plan.documents)
        return PacedDrafter(
            side,
            model,
            [library.document_kv(model, hit.chunk) for hit in hits],
            [hit.score / RELEVANCE_TEMPERATURE for hit in hits],
            model.encode(model.prompt.question_text((), question)),
            plan,
            self._decode_s,
        )
