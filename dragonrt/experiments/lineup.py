"""All ways of answering side by side (SPEC 1.6): the baselines, DRAGON as published, and ours.

The same questions, models, documents and link for each: in real time over real processes, with real
models in virtual time, or against a cloud that already runs, on another host perhaps.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from dragonrt import bundled
from dragonrt.experiments.arena import Arena, Outcome, linked
from dragonrt.experiments.baselines.cloud import serve_baselines
from dragonrt.experiments.baselines.connection import baselines_process, connected_baselines
from dragonrt.experiments.baselines.device import BASELINES, Asked, BaselineDevice
from dragonrt.experiments.baselines.messages import Channel
from dragonrt.experiments.baselines.reading import BaselineSide
from dragonrt.experiments.baselines.server import baseline_side
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.experiments.comparison import (
    ALGORITHM1_GREEDY,
    COUPLED_GREEDY,
    LEADERLESS,
    SYNCHRONOUS,
    Method,
)
from dragonrt.experiments.framework import ExperimentError
from dragonrt.experiments.sides import (
    LoadedSide,
    PacedWorker,
    document_side,
    run,
    sample_settings,
)
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.memory import memory_streams
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.runtime.endpoints import Address
from dragonrt.runtime.plan import Plan
from dragonrt.sampling.samplers import Sampler

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


LEFT_OUT = (
    "baselines: {} are left out: a cloud would give documents away or answer alone, which only the "
    "loopback experiment's own cloud does"
)


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

    arena: Arena
    baselines: BaselineDevice

    async def ask(self, name: str, asked: Asked) -> Sample:
        """One answer by the method of that name, one of `ALL`."""
        if name in METHODS:
            given = await self.aggregate(METHODS[name], asked)
            return Sample(
                1000 * given.first_s,
                1000 * given.seconds,
                given.wire_bytes,
                given.accepted("device"),
                given.accepted("cloud"),
            )
        answer = await self.baselines.ask(name, asked)
        first_s, last_s = answer.times_s[0], answer.times_s[-1]
        return Sample(
            1000 * (first_s - answer.asked_s), 1000 * (last_s - answer.asked_s), answer.wire_bytes
        )

    async def aggregate(self, method: Method, asked: Asked) -> Outcome:
        """The answer in which the sides aggregate."""
        plan = Plan(asked.seed, Sampler(asked.temperature), documents=asked.documents)
        return await self.arena.ask_long(method.plan(plan), asked.question, asked.tokens)


def _link(extra_round_trip_s: float) -> LinkProfile:
    """Half of the extra round trip in each direction, jitter a fifth of it (DRAGON §7.2)."""
    one_way_s = extra_round_trip_s / 2
    return LinkProfile(latency_s=one_way_s, jitter_s=one_way_s / 5, up=BANDWIDTH, down=BANDWIDTH)


@dataclass(frozen=True, slots=True)
class RealProcesses:
    """This process as the device, and two more on loopback: a cloud, and the baselines' cloud."""

    device: LoadedSide
    cloud_port: int
    baselines_port: int

    @asynccontextmanager
    async def lineup(self, extra_round_trip_s: float, seed: int) -> AsyncIterator[Lineup]:
        """Connected to both over links of the same kind."""

        def emulate(stream: Stream) -> Stream:
            return EmulatedStream(stream, *_link(extra_round_trip_s).models("device", seed))

        async with (
            self.device.connected(self.cloud_port, emulate) as arena,
            connected_baselines(arena.side, self.baselines_port, emulate) as baselines,
        ):
            yield Lineup(arena, baselines)

    def measure(
        self, extra_round_trip_s: float, seed: int, ask: Callable[[Lineup], Awaitable[None]]
    ) -> None:
        """Run `ask` connected."""

        async def connected() -> None:
            async with self.lineup(extra_round_trip_s, seed) as lineup:
                await ask(lineup)

        run(connected(), virtual=False)


@contextmanager
def real_processes(model: str = bundled.models()[0]) -> Iterator[RealProcesses]:
    """Two processes with the cloud's sample documents, and this one with the device's."""
    documents = str(bundled.documents("cloud"))
    with cloud_process("--model", model, "--documents", documents) as cloud:
        device = LoadedSide.load(sample_settings("device", model))
        port = cloud.wait_ready()  # the index is complete: the other process only opens it
        with baselines_process(model) as baselines:
            yield RealProcesses(device, port, baselines.wait_ready())


class PacedModels:
    """Both sides' real models and documents in this process, decoding at a given pace."""

    def __init__(self, decode_s: float) -> None:
        self._decode_s = decode_s
        self.device = LoadedSide.load(sample_settings("device"))
        self.cloud = LoadedSide.opened(sample_settings("cloud"), self.device.model)

    def _baseline(self, side: LoadedSide) -> BaselineSide:
        worker, librarian = PacedWorker(self._decode_s), PacedWorker(0.0)
        return BaselineSide(side.settings.side, side.model, side.library, worker, librarian)

    @asynccontextmanager
    async def lineup(self, extra_round_trip_s: float, seed: int) -> AsyncIterator[Lineup]:
        """Both connections, over emulated links; used in virtual time."""
        link = _link(extra_round_trip_s)
        ours, theirs = memory_streams()
        channel = Channel(EmulatedStream(ours, *link.models("device", seed)))
        serving = asyncio.create_task(serve_baselines(theirs, self._baseline(self.cloud)))
        device, cloud = (document_side(each, self._decode_s) for each in (self.device, self.cloud))
        try:
            await channel.greet(self.device.model.document_fingerprint)
            async with linked(device, [cloud], link, seed) as arena:
                yield Lineup(arena, BaselineDevice(self._baseline(self.device), channel))
        finally:
            await channel.close()
            await serving

    def measure(
        self, extra_round_trip_s: float, seed: int, ask: Callable[[Lineup], Awaitable[None]]
    ) -> None:
        """Run `ask` connected."""

        async def connected() -> None:
            async with self.lineup(extra_round_trip_s, seed) as lineup:
                await ask(lineup)

        run(connected(), virtual=True)


def asked_of(methods: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `methods` that an ordinary cloud can be asked; stderr says which cannot."""
    left_out = ", ".join(name for name in methods if name not in OVER_A_NETWORK)
    print(LEFT_OUT.format(left_out), file=sys.stderr)
    return tuple(name for name in methods if name in OVER_A_NETWORK)


def measure_over_network(address: Address, ask: Callable[[Lineup], Awaitable[None]]) -> int:
    """Run `ask` connected to the cloud at `address`; the round trip meanwhile, milliseconds.

    Nothing is emulated. Raises DragonError if the cloud cannot be reached, does not fit or was
    lost.
    """
    device = LoadedSide.load(sample_settings("device"))

    async def connected() -> int:
        async with device.connected_to(address) as arena:
            unused, _ = memory_streams()  # the device alone sends nothing
            await ask(Lineup(arena, BaselineDevice(baseline_side(arena.side), Channel(unused))))
            if (round_trip_s := arena.round_trip_s()) is None:
                raise ExperimentError("the cloud was lost while measuring: run it again")
            return round(1000 * round_trip_s)

    return run(connected(), virtual=False)
