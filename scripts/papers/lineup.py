"""All ways of answering side by side (SPEC 1.6): the baselines, DRAGON as published, and ours.

The same questions, models, documents and link for each: in real time over real processes, with real
models in virtual time, or against a cloud that already runs, on another host perhaps.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, replace

from dragonrt import bundled
from dragonrt.experiments.cloud_process import listening_process
from dragonrt.experiments.comparison import (
    ALGORITHM1_GREEDY,
    COUPLED_GREEDY,
    LEADERLESS,
    SYNCHRONOUS,
    Method,
)
from dragonrt.link.memory import memory_streams
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream, connect
from dragonrt.modes.question import Question
from dragonrt.node.endpoints import Address
from dragonrt.node.local_side import LocalSide
from dragonrt.sampling.samplers import Sampler
from scripts.papers.arena import Arena, Given, RealArena, emulated
from scripts.papers.dragon.baselines.cloud import serve_baselines
from scripts.papers.dragon.baselines.device import BASELINES, NOTICE, Asked, BaselineDevice
from scripts.papers.dragon.baselines.exchange import Channel
from scripts.papers.dragon.baselines.reading import BaselineSide
from scripts.papers.dragon.baselines.server import HOST, baseline_side
from scripts.papers.framework import ExperimentError, Progress, Settings
from scripts.papers.intervals import Row
from scripts.papers.model_sides import PacedWorker, document_side, run
from scripts.papers.sample_sides import LoadedSide, sample_pair, sample_settings
from scripts.papers.virtual_arena import linked

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

    async def aggregate(self, method: Method, asked: Asked) -> Given:
        """The answer in which the sides aggregate."""
        question = Question(
            prompt=asked.question,
            seed=asked.seed,
            sampler=Sampler(asked.temperature),
            max_tokens=asked.tokens,
            documents=asked.documents,
        )
        return await self.arena.ask(question, replace(method.settings(), on_loss="wait"))


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
        emulate = emulated(_link(extra_round_trip_s), seed)
        async with (
            self.device.connected(self.cloud_port, emulate) as arena,
            _connected_baselines(arena.side, self.baselines_port, emulate) as baselines,
        ):
            yield Lineup(arena, baselines)


@contextmanager
def real_processes(model: str) -> Iterator[RealProcesses]:
    """Two processes with the cloud's sample documents, and this one with the device's."""
    server = ("scripts.papers.dragon.baselines.server", str(bundled.documents("cloud")), model)
    with sample_pair(model) as (device, port), listening_process(*server) as baselines:
        yield RealProcesses(device, port, baselines.wait_ready())


@asynccontextmanager
async def _connected_baselines(
    side: LocalSide, port: int, emulate: Callable[[Stream], Stream] | None
) -> AsyncIterator[BaselineDevice]:
    """This device connected to the baselines' cloud on that loopback port, until the context ends.

    Raises LinkError or BaselineError.
    """
    stream: Stream = await connect(HOST, port)
    channel = Channel(emulate(stream) if emulate is not None else stream)
    try:
        await channel.greet(side.model.document_fingerprint)
        yield BaselineDevice(baseline_side(side), channel)
    finally:
        await channel.close()


class PacedModels:
    """Both sides' real models and documents in this process, decoding at a given pace."""

    def __init__(self, model: str, decode_s: float) -> None:
        self._decode_s = decode_s
        self.device = LoadedSide.load(sample_settings("device", model))
        self.cloud = LoadedSide.opened(sample_settings("cloud", model), self.device.model)

    def _baseline(self, side: LoadedSide) -> BaselineSide:
        worker, librarian = PacedWorker(self._decode_s), PacedWorker(0.0)
        return BaselineSide(side.settings.side, side.model, side.library, worker, librarian)

    @asynccontextmanager
    async def lineup(self, extra_round_trip_s: float, seed: int) -> AsyncIterator[Lineup]:
        """Both connections, over emulated links; used in virtual time."""
        link = _link(extra_round_trip_s)
        ours, theirs = memory_streams()
        channel = Channel(emulated(link, seed)(ours))
        serving = asyncio.create_task(serve_baselines(theirs, self._baseline(self.cloud)))
        device, cloud = (document_side(each, self._decode_s) for each in (self.device, self.cloud))
        try:
            await channel.greet(self.device.model.document_fingerprint)
            async with linked(device, [cloud], link, seed) as arena:
                yield Lineup(arena, BaselineDevice(self._baseline(self.device), channel))
        finally:
            await channel.close()
            await serving


def asked_of(methods: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `methods` that an ordinary cloud can be asked; stderr says which cannot."""
    left_out = ", ".join(name for name in methods if name not in OVER_A_NETWORK)
    print(LEFT_OUT.format(left_out), file=sys.stderr)
    return tuple(name for name in methods if name in OVER_A_NETWORK)


@dataclass(frozen=True, slots=True)
class RunningCloud:
    """An ordinary cloud that already runs: it can be asked what is in `OVER_A_NETWORK` only."""

    address: Address
    device: LoadedSide

    @asynccontextmanager
    async def lineup(self, extra_round_trip_s: float, seed: int) -> AsyncIterator[Lineup]:
        """Connected to it, nothing emulated."""
        async with self.device.connected_to(self.address) as arena:
            unused, _ = memory_streams()  # the device alone sends nothing
            yield Lineup(arena, BaselineDevice(baseline_side(arena.side), Channel(unused)))


@contextmanager
def _contestants(
    settings: Settings, decode_s: float
) -> Iterator[RealProcesses | PacedModels | RunningCloud]:
    if settings.cloud is not None:
        device = LoadedSide.load(sample_settings("device", settings.model))
        yield RunningCloud(settings.cloud, device)
        return
    print(NOTICE, file=sys.stderr)
    if not settings.real:
        yield PacedModels(settings.model, decode_s)
        return
    with real_processes(settings.model) as processes:
        yield processes


def measured(
    settings: Settings,
    methods: tuple[str, ...],
    round_trips_ms: Sequence[int],
    asked: Sequence[tuple[Asked, Row]],
    progress: Progress,
    decode_s: float = 0.0,
) -> list[Row]:
    """A row for every method, round trip and question asked, which has columns of its own.

    In virtual time a forward takes `decode_s`. Over a network there is one round trip, the measured
    one. Raises DragonError if the cloud cannot be reached, does not fit or was lost.
    """
    if settings.cloud is not None:
        methods, round_trips_ms = asked_of(methods), [0]
    total = len(round_trips_ms) * len(asked) * len(methods)
    rows: list[Row] = []

    async def ask_all(milliseconds: int, connecting: AbstractAsyncContextManager[Lineup]) -> None:
        async with connecting as lineup:
            for each, columns in asked:
                for name in methods:
                    sample = await lineup.ask(name, each)
                    row = {"round_trip_ms": milliseconds, "method": name}
                    rows.append(row | columns | asdict(sample))
                    progress(len(rows), total)
            if settings.cloud is not None and isinstance(lineup.arena, RealArena):
                round_trip_s = lineup.arena.round_trip_s()
                if round_trip_s is None:
                    raise ExperimentError("the cloud was lost while measuring: run it again")
                for row in rows:
                    row["round_trip_ms"] = round(1000 * round_trip_s)

    with _contestants(settings, decode_s) as contestants:
        for milliseconds in round_trips_ms:
            connecting = contestants.lineup(milliseconds / 1000, settings.seed)
            run(ask_all(milliseconds, connecting), virtual=not settings.real)
    return rows
