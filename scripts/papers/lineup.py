"""All ways of answering side by side (SPEC 1.6): the baselines, DRAGON as published, and ours.

The same questions, models, documents and link for each: in real time over real processes, with real
models in virtual time, or against a cloud that already runs, on another host perhaps.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

from dragonrt import bundled
from dragonrt.link.emulation import memory_streams
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream, connect
from dragonrt.modes.question import Question
from dragonrt.node.connections.addresses import Address
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.cloud_process import listening_process
from dragonrt.service.comparison import (
    ALGORITHM1_GREEDY,
    COUPLED_GREEDY,
    LEADERLESS,
    SYNCHRONOUS,
    costs,
)
from dragonrt.side import SIDES
from scripts.lab.arena import Arena, emulated, linked
from scripts.lab.intervals import Row
from scripts.lab.model_sides import (
    LoadedSide,
    PacedWorker,
    document_side,
    run,
    sample_pair,
    sample_settings,
)
from scripts.papers.dragon.baselines.cloud import HOST, Channel, baseline_side, serve_baselines
from scripts.papers.dragon.baselines.device import BASELINES, NOTICE, BaselineDevice
from scripts.papers.dragon.baselines.reading import Asked, BaselineSide
from scripts.papers.framework import ExperimentError, Progress, Settings

DRDG_TW, DRAGON = "DRDG/TW", "DRAGON"
COUPLED, OURS = "coupled, greedy", "coupled, leaderless"
METHODS = {
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
class Lineup:
    """Everything that can be asked over one link."""

    arena: Arena
    baselines: BaselineDevice

    async def ask(self, name: str, asked: Asked) -> Row:
        """Return what an answer costs by the method of that name, one of `ALL`, as columns.

        Times are from the question on; acceptance is None if nobody drafts.
        """
        if name in METHODS:
            question = Question(
                prompt=asked.question,
                seed=asked.seed,
                sampler=Sampler(asked.temperature),
                max_tokens=asked.tokens,
                documents=asked.documents,
            )
            settings = replace(METHODS[name].settings(), on_loss="wait")
            given = await self.arena.ask(question, settings)
            first_s, last_s, wire_bytes = given.first_s, given.seconds, given.wire_bytes
            accepted = {side: costs([given])[f"accepted_{side}"] for side in SIDES}
        else:
            answer = await self.baselines.ask(name, asked)
            first_s, last_s = (answer.times_s[at] - answer.asked_s for at in (0, -1))
            wire_bytes, accepted = answer.wire_bytes, dict.fromkeys(SIDES)
        found = {"first_ms": 1000 * first_s, "total_ms": 1000 * last_s, "wire_bytes": wire_bytes}
        return found | {f"accepted_{side}": share for side, share in accepted.items()}


Connect = Callable[[float, int], AbstractAsyncContextManager[Lineup]]
"""Connects to everything over links with that extra round trip in seconds and that seed."""


def _link(extra_round_trip_s: float) -> LinkProfile:
    """Return half of the round trip in each direction, jitter a fifth of it (DRAGON §7.2)."""
    one_way_s = extra_round_trip_s / 2
    return LinkProfile(latency_s=one_way_s, jitter_s=one_way_s / 5, up=BANDWIDTH, down=BANDWIDTH)


@contextmanager
def real_processes(model: str) -> Iterator[Connect]:
    """Start a cloud and the baselines' cloud on loopback; this process is the device."""
    server = ("scripts.papers.dragon.baselines.cloud", str(bundled.documents("cloud")), model)
    path = ("env", f"PYTHONPATH={sys.path[0]}")  # of the checkout, where `scripts` is
    run = listening_process(*server, within=path)
    with sample_pair(model) as (device, port), run as baselines:
        baselines_port = baselines.wait_ready()

        @asynccontextmanager
        async def lineup(extra_round_trip_s: float, seed: int) -> AsyncIterator[Lineup]:
            emulate = emulated(_link(extra_round_trip_s), seed)
            async with device.connected(port, emulate) as arena:
                stream: Stream = emulate(await connect(HOST, baselines_port))
                async with _greeted(stream, baseline_side(arena.side)) as baselines:
                    yield Lineup(arena, baselines)

        yield lineup


@asynccontextmanager
async def _greeted(stream: Stream, side: BaselineSide) -> AsyncIterator[BaselineDevice]:
    """Yield a device connected to the baselines' cloud. Raises LinkError or BaselineError."""
    channel = Channel(stream)
    try:
        await channel.greet(side.model.document_fingerprint)
        yield BaselineDevice(side, channel)
    finally:
        await channel.close()


def paced_models(model: str, decode_s: float) -> Connect:
    """Load both sides' real models and documents into this process, for virtual time."""
    sides = LoadedSide.both(model)

    @asynccontextmanager
    async def lineup(extra_round_trip_s: float, seed: int) -> AsyncIterator[Lineup]:
        link = _link(extra_round_trip_s)
        ours, theirs = memory_streams()
        device, cloud = (document_side(each, decode_s) for each in sides)
        own, other = (
            BaselineSide(
                each.settings.side,
                each.model,
                each.library,
                PacedWorker(decode_s),
                PacedWorker(0.0),
            )
            for each in sides
        )
        serving = asyncio.create_task(serve_baselines(theirs, other))
        try:
            async with (
                _greeted(emulated(link, seed)(ours), own) as baselines,
                linked(device, [cloud], link, seed) as arena,
            ):
                yield Lineup(arena, baselines)
        finally:
            await serving

    return lineup


def running_cloud(model: str, address: Address) -> Connect:
    """Load the device for an ordinary cloud that already runs; nothing is emulated."""
    device = LoadedSide.load(sample_settings("device", model))

    @asynccontextmanager
    async def lineup(extra_round_trip_s: float, seed: int) -> AsyncIterator[Lineup]:
        async with device.connected_to(address) as arena:
            unused, _ = memory_streams()  # the device alone sends nothing
            yield Lineup(arena, BaselineDevice(baseline_side(arena.side), Channel(unused)))

    return lineup


def measured(
    settings: Settings,
    methods: tuple[str, ...],
    round_trips_ms: Sequence[int],
    asked: Sequence[tuple[Asked, Row]],
    progress: Progress,
    decode_s: float = 0.0,
) -> list[Row]:
    """Return a row for every method, round trip and question, which has columns of its own.

    In virtual time a forward takes `decode_s`. Over a network there is one round trip, the measured
    one. Raises DragonError if the cloud cannot be reached, does not fit or was lost.
    """
    if settings.cloud is not None:
        left_out = ", ".join(name for name in methods if name not in OVER_A_NETWORK)
        print(LEFT_OUT.format(left_out), file=sys.stderr)
        methods = tuple(name for name in methods if name in OVER_A_NETWORK)
        round_trips_ms = [0]
    else:
        print(NOTICE, file=sys.stderr)
    total = len(round_trips_ms) * len(asked) * len(methods)
    rows: list[Row] = []

    async def ask_all(milliseconds: int, connecting: AbstractAsyncContextManager[Lineup]) -> None:
        async with connecting as lineup:
            for each, columns in asked:
                for name in methods:
                    row = {"round_trip_ms": milliseconds, "method": name}
                    rows.append(row | columns | await lineup.ask(name, each))
                    progress(len(rows), total)
            if settings.cloud is not None:
                (cloud,) = lineup.arena.connectors.values()
                if cloud.peer is None or cloud.peer.round_trip_s is None:
                    raise ExperimentError("the cloud was lost while measuring: run it again")
                for row in rows:
                    row["round_trip_ms"] = round(1000 * cloud.peer.round_trip_s)

    with ExitStack() as stack:
        if settings.cloud is not None:
            connect_all = running_cloud(settings.model, settings.cloud)
        elif settings.real:
            connect_all = stack.enter_context(real_processes(settings.model))
        else:
            connect_all = paced_models(settings.model, decode_s)
        for milliseconds in round_trips_ms:
            connecting = connect_all(milliseconds / 1000, settings.seed)
            run(ask_all(milliseconds, connecting), virtual=not settings.real)
    return rows
