"""`pipeline`: a snapshot of both sides' pipelines (DRAGON Fig. 9).

The link is that figure's: 500 ms of round trip, a sinusoidal jitter of a fifth of it with a period
of 20π seconds. In virtual time the device decodes in 100 ms, the cloud in 80 ms; in real time both
are as fast as the bundled model is here, and the latency is emulated on the device's end. With a
cloud that already runs elsewhere nothing is emulated, and only the device's side is seen: where
that cloud was started with --trace, `dragonrt trace` draws both.
"""

import asyncio
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragonrt.experiments.arena import Pace, linked, scripted
from dragonrt.experiments.framework import Clock, ExperimentError, Progress, Settings
from dragonrt.experiments.pipeline_picture import draw_pipeline
from dragonrt.experiments.statistics import Row, grouped
from dragonrt.experiments.timeline import SIDES, Event, Timeline, aligned, timeline
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.stream import Stream
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.scheduler import Placement
from dragonrt.runtime.trace import TraceFile
from dragonrt.runtime.trace_summary import read_events
from dragonrt.sampling.samplers import Sampler
from dragonrt.simulation import loop
from dragonrt.simulation.drafter import Script

NAME = "pipeline"
SUMMARY = "A snapshot of both sides' pipelines, RTT, ΔZ and acceptance (DRAGON Fig. 9; a minute)"
CLOCKS: tuple[Clock, ...] = ("virtual", "real")

PACE = Pace(device_s=0.1, cloud_s=0.08, rtt_s=0.5, jitter=0.2)
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

    async def answer() -> None:
        clock = asyncio.get_running_loop().time
        sides = []
        for side, file in files.items():
            trace = TraceFile(file, clock, side=side)
            trace.event(0, "start", version="", model="simulated", clock="virtual")
            script = replace(SCRIPT, seed=plan.seed)
            sides.append(scripted(side, script, PACE.forward_s[side], trace))
        async with linked(sides[0], sides[1:], PACE.link) as arena:
            await asyncio.sleep(2.0)  # the round trip is known before the question, as in a chat
            await arena.ask(plan, "a question")

    loop.run(answer())
    return [
        read_events(file.getvalue().splitlines(keepends=True), f"the {side}'s trace")
        for side, file in files.items()
    ]


def _record_real(plans: Sequence[Plan], settings: Settings) -> Iterator[list[list[Event]]]:
    """The traces of an answer for each plan, over one connection; kept beside the results.

    Of both sides, or the device's alone where the cloud runs elsewhere.
    """
    from dragonrt import bundled
    from dragonrt.experiments.cloud_process import cloud_process
    from dragonrt.experiments.sides import LoadedSide, run, sample_settings
    from dragonrt.runtime.endpoints import Address

    paths = {side: settings.results / f"{side}.jsonl" for side in SIDES}
    question = bundled.questions()[0].text
    side_settings = replace(sample_settings("device"), trace=paths["device"])

    async def ask(device: LoadedSide, address: Address) -> None:
        async with device.connected_to(address) as arena:
            await asyncio.sleep(1.0)  # the round trip is known before the question
            for plan in plans:
                await arena.ask(plan, question)

    def emulate(stream: Stream) -> Stream:
        return EmulatedStream(stream, *PACE.link.models("device"))

    if settings.cloud is not None:
        del paths["cloud"]
        run(ask(LoadedSide.load(side_settings), settings.cloud), virtual=False)
    else:
        options = ("--documents", str(bundled.documents("cloud")), "--trace", str(paths["cloud"]))
        with cloud_process(*options) as cloud:
            device = LoadedSide.load(side_settings)
            address = Address("127.0.0.1", cloud.wait_ready(), emulate=emulate)
            run(ask(device, address), virtual=False)
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
