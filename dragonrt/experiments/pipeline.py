"""`pipeline`: a snapshot of both sides' pipelines (DRAGON Fig. 9).

The link is that figure's: 500 ms of round trip, a sinusoidal jitter of a fifth of it with a period
of 20π seconds. In virtual time the device decodes in 100 ms, the cloud in 80 ms; in real time both
are as fast as the bundled model is here, and the latency is emulated on the device's end. With a
cloud that already runs elsewhere nothing is emulated, and only the device's side is seen: where
that cloud was started with --trace, `dragonrt trace` draws both.
"""

import asyncio
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragonrt.experiments.framework import Clock, ExperimentError, Progress, Settings
from dragonrt.experiments.pipeline_picture import draw_pipeline
from dragonrt.experiments.statistics import Row, grouped
from dragonrt.experiments.timeline import (
    SIDES,
    Event,
    Timeline,
    aligned,
    timeline,
)
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.memory import memory_streams
from dragonrt.link.models import Jitter, LinkModel
from dragonrt.link.stream import Stream
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.modes.dragon import Asking
from dragonrt.runtime.peer import Peer
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.scheduler import Placement
from dragonrt.runtime.trace import TraceFile
from dragonrt.runtime.trace_summary import read_events
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.simulation import loop
from dragonrt.simulation.drafter import Script, SimulatedDrafter
from dragonrt.simulation.pair import SimulatedCloud, SimulatedSide

NAME = "pipeline"
SUMMARY = "A snapshot of both sides' pipelines, RTT, ΔZ and acceptance (DRAGON Fig. 9; a minute)"
CLOCKS: tuple[Clock, ...] = ("virtual", "real")

ONE_WAY_S = 0.25
JITTER = Jitter("sinusoidal", ONE_WAY_S / 5, 20 * math.pi)
DECODE_S: dict[Side, float] = {"device": 0.1, "cloud": 0.08}
TOKENS, TOKENS_QUICK = 60, 30
SCRIPT = Script(0, vocabulary=64, sharpness=3.0, disagreement=0.8, stop=0.0)
"""Sides that disagree as far as the sample documents do; its seed is the run's."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way of answering and the name of its picture, appended to the experiment's."""

    name: str
    picture: str
    rule: str
    placement: Placement


WAYS = (
    Way("algorithm1, greedy", "", "algorithm1", Placement.GREEDY),
    Way("coupled, leaderless", "-leaderless", "coupled", Placement.BOTH),
)


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row for every event of both sides' traces (`dragonrt.runtime.trace` lists them)."""
    plans = [
        Plan(
            settings.seed,
            Sampler(0.8),
            rule=way.rule,
            placement=way.placement,
            max_tokens=TOKENS_QUICK if settings.quick else TOKENS,
            follow=False,
        )
        for way in WAYS
    ]
    recorded = _record_real(plans, settings) if settings.real else map(_record_virtual, plans)
    events: list[Row] = []
    for done, (way, traces) in enumerate(zip(WAYS, recorded, strict=True), start=1):
        for trace in traces:
            events += ({"way": way.name, **event} for event in trace if event["event"] != "draft")
        progress(done, len(WAYS))
    columns = list(dict.fromkeys(name for event in events for name in event))
    return [{column: event.get(column) for column in columns} for event in events]


def _record_virtual(plan: Plan) -> list[list[Event]]:
    """Both sides' traces of one simulated answer, on the virtual clock."""
    files = {side: io.StringIO() for side in SIDES}
    loop.run(_answer(plan, replace(SCRIPT, seed=plan.seed), files))
    return [
        read_events(files[side].getvalue().splitlines(keepends=True), f"the {side}'s trace")
        for side in SIDES
    ]


async def _answer(plan: Plan, script: Script, files: dict[Side, io.StringIO]) -> None:
    clock = asyncio.get_running_loop().time
    sides = {}
    for side in SIDES:
        trace = TraceFile(files[side], clock, side=side)
        trace.event(0, "start", version="", model="simulated", clock="virtual")
        sides[side] = SimulatedSide(side, lambda _: script, make_drafter=_steady, trace=trace)
    cloud = SimulatedCloud(sides["cloud"])

    async def dial() -> Peer:
        ours, theirs = memory_streams()
        cloud.accept(theirs)
        up, down = (LinkModel(latency_s=ONE_WAY_S, jitter=JITTER) for _ in range(2))
        stream: Stream = EmulatedStream(ours, up, down)
        return Peer(stream, sides["device"].connection(), sides["device"].trace)

    connector = Connector(dial)
    await connector.connect()
    keeper = asyncio.create_task(connector.run(), name="connector")
    await asyncio.sleep(2.0)  # the round trip is known before the question, as it is in a chat
    asking = Asking(
        sides["device"],
        connector,
        plan,
        on_decision=lambda decision: None,
        on_notice=lambda text: None,
    )
    await asking.ask("a question")
    keeper.cancel()
    await asyncio.gather(keeper, return_exceptions=True)
    await cloud.kill()


def _steady(side: Side, plan: Plan, script: Script, _: Any) -> SimulatedDrafter:
    """A model whose forwards all take the same time."""
    return SimulatedDrafter(side, plan, script, lambda: DECODE_S[side])


def _record_real(plans: Sequence[Plan], settings: Settings) -> Iterator[list[list[Event]]]:
    """The traces of an answer for each plan, over one connection; kept beside the results.

    Of both sides, or the device's alone where the cloud runs elsewhere.
    """
    from dragonrt import bundled
    from dragonrt.experiments.cloud_process import cloud_process
    from dragonrt.experiments.device_side import DeviceSide, sample_settings
    from dragonrt.runtime import main as programs
    from dragonrt.runtime.endpoints import Address

    paths = {side: settings.results / f"{side}.jsonl" for side in SIDES}
    question = bundled.questions()[0].text
    side_settings = replace(sample_settings("device"), trace=paths["device"])

    async def ask(device: DeviceSide, address: Address) -> None:
        async with device.connected_to(address) as (side, connector):
            await asyncio.sleep(1.0)  # the round trip is known before the question
            for plan in plans:
                asking = Asking(
                    side,
                    connector,
                    plan,
                    on_decision=lambda decision: None,
                    on_notice=lambda text: None,
                )
                await asking.ask(question)

    def emulate(stream: Stream) -> Stream:
        up, down = (LinkModel(latency_s=ONE_WAY_S, jitter=JITTER) for _ in range(2))
        return EmulatedStream(stream, up, down)

    if settings.cloud is not None:
        del paths["cloud"]
        programs.run(ask(DeviceSide.load(side_settings), settings.cloud))
    else:
        options = ("--documents", str(bundled.documents("cloud")), "--trace", str(paths["cloud"]))
        with cloud_process(*options) as cloud:
            device = DeviceSide.load(side_settings)
            address = Address("127.0.0.1", cloud.wait_ready(), emulate=emulate)
            programs.run(ask(device, address))
    traces = []
    for path in paths.values():
        with path.open(encoding="utf-8") as lines:
            traces.append(read_events(lines, str(path)))
    asked = [event["session"] for event in traces[0] if event["event"] == "open"]
    if len(asked) != len(plans):
        raise ExperimentError("the cloud was lost while recording: run it again")
    for session in asked:
        yield [[event for event in trace if event["session"] in (0, session)] for trace in traces]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """What the pictures show, in numbers, by way of answering."""
    summary = {}
    for way, line in _timelines(rows).items():
        decisions = line.decisions
        between_s = decisions[-1].time_s - decisions[0].time_s
        compared = [one.accepted for one in decisions if None not in one.accepted.values()]
        summary[way] = {
            "tokens": len(decisions),
            "ms_per_token_after_the_first": round(1000 * between_s / (len(decisions) - 1), 2),
            "accepted": {
                side: round(sum(bool(one[side]) for one in compared) / len(compared), 4)
                for side in SIDES
            },
            "switches": len(line.switches),
            "forwards": {side: len(track.forwards) for side, track in line.tracks.items()},
            "messages": len(line.flights),
        }
    return summary


def plot(rows: list[Row], path: Path) -> None:
    """A picture for each way: the first at `path`, the others beside it."""
    lines = _timelines(rows)
    for way in WAYS:
        draw_pipeline(lines[way.name], path.with_stem(path.stem + way.picture))


def _timelines(rows: list[Row]) -> dict[str, Timeline]:
    """The timelines of the ways, from the events that the rows are."""
    lines = {}
    for (way,), group in grouped(rows, "way").items():
        events = [
            {name: value for name, value in row.items() if value is not None and name != "way"}
            for row in group
        ]
        traces = [[event for event in events if event["side"] == side] for side in SIDES]
        lines[way] = timeline(aligned([trace for trace in traces if trace]))
    return lines
