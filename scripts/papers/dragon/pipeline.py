"""`pipeline`: a snapshot of both sides' pipelines (DRAGON Fig. 9).

The link is that figure's. In virtual time the device decodes in 100 ms, the cloud in 80 ms; in real
time the latency is emulated on the device's end. With a cloud that already runs nothing is
emulated, and only the device is seen.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import SIDES
from dragonrt.testing.scripted import Script
from dragonrt.traces.events import AnswerOpened, Drafted, Record, TraceStarted
from dragonrt.traces.file import SCHEMA, from_object, read_trace, to_object
from scripts.lab.arena import Pace, emulated, played, scripted
from scripts.lab.intervals import Row, grouped
from scripts.papers.dragon.pipeline_picture import draw_pipeline
from scripts.papers.dragon.timeline import Timeline, by_side, timeline
from scripts.papers.framework import Clock, ExperimentError, Progress, Settings

NAME = "pipeline"
SUMMARY = "A snapshot of both sides' pipelines, RTT, ΔZ and acceptance (DRAGON Fig. 9; a minute)"
CLOCKS: tuple[Clock, ...] = ("virtual", "real")

PACE = Pace(device_s=0.1, cloud_s=0.08, rtt_s=0.5, jitter=0.2)
TOKENS, TOKENS_QUICK = 60, 30
SCRIPT = Script(0, vocabulary=64, sharpness=3.0, disagreement=0.8, stop=0.0)
"""Sides that disagree as far as the sample documents do; its seed is the run's."""
WAYS = {
    "algorithm1, greedy": DragonSettings(
        rule="algorithm1", aggregator=Aggregator.GREEDY, follow=False
    ),
    "coupled, leaderless": DragonSettings(rule="coupled", aggregator=Aggregator.BOTH, follow=False),
}

Traces = list[list[Record]]
"""Of both sides, or the device's alone if the cloud runs elsewhere."""


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row for every event of both sides' traces (`dragonrt.traces.events` lists them)."""
    question = Question(
        prompt="a question",
        seed=settings.seed,
        sampler=Sampler(0.8),
        max_tokens=settings.size(TOKENS, TOKENS_QUICK),
    )
    recorded = _record_real(question, settings) if settings.real else _record_virtual(question)
    found: list[Row] = []
    for done, (way, traces) in enumerate(zip(WAYS, recorded, strict=True), start=1):
        found += (
            {"way": way, **to_object(each)}
            for trace in traces
            for each in trace
            if not isinstance(each.event, Drafted)
        )
        progress(done, len(WAYS))
    columns = list(dict.fromkeys(name for row in found for name in row))
    return [{column: row.get(column) for column in columns} for row in found]


def _record_virtual(question: Question) -> Iterator[Traces]:
    """Yield the traces of one simulated answer in each way, on the virtual clock."""
    for settings in WAYS.values():
        started = TraceStarted(SCHEMA, "", "simulated", "virtual")
        traces = {side: [Record(0.0, side, 0, started)] for side in SIDES}
        script = replace(SCRIPT, seed=question.seed)
        sides = [
            scripted(side, script, PACE.forward_s[side], (trace.append,))
            for side, trace in traces.items()
        ]
        # The round trip is known before the question, as in a chat.
        played(question, settings, *sides, link=PACE.link, start_s=2.0)
        yield list(traces.values())


def _record_real(question: Question, settings: Settings) -> Iterator[Traces]:
    """Yield the traces of an answer in each way, over one connection; keep them in the results."""
    from dragonrt import bundled
    from dragonrt.node.connections.addresses import Address
    from scripts.lab.model_sides import LoadedSide, run, sample_pair, sample_settings

    paths = {side: settings.results / f"{side}.jsonl" for side in SIDES}
    question = replace(question, prompt=bundled.questions()[0].text)

    async def ask(device: LoadedSide, address: Address) -> None:
        traced = replace(device, settings=replace(device.settings, trace=paths["device"]))
        async with traced.connected_to(address) as arena:
            await asyncio.sleep(1.0)  # the round trip is known before the question
            for way in WAYS.values():
                await arena.ask(question, way)

    if settings.cloud is not None:
        del paths["cloud"]
        device = LoadedSide.load(sample_settings("device", settings.model))
        run(ask(device, settings.cloud), virtual=False)
    else:
        trace = ("--trace", str(paths["cloud"]))
        with sample_pair(settings.model, *trace) as (device, port):
            run(ask(device, Address("127.0.0.1", port, emulate=emulated(PACE.link))), virtual=False)
    traces = [read_trace(path) for path in paths.values()]
    asked = [each.session for each in traces[0] if isinstance(each.event, AnswerOpened)]
    if len(asked) != len(WAYS):
        raise ExperimentError("the cloud was lost while recording: run it again")
    for session in asked:
        yield [[each for each in trace if each.session in (0, session)] for trace in traces]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return what the pictures show, in numbers, by way of answering."""
    summary = {}
    for way, line in timelines(rows).items():
        decisions = line.decisions
        between_s = decisions[-1].time_s - decisions[0].time_s
        compared = [each.event for each in decisions if None not in map(each.event.accepted, SIDES)]
        summary[way] = {
            "tokens": len(decisions),
            "ms_per_token_after_the_first": round(1000 * between_s / (len(decisions) - 1), 2),
            "accepted": {
                side: round(sum(bool(one.accepted(side)) for one in compared) / len(compared), 4)
                for side in SIDES
            },
            "switches": len(line.switches),
            "forwards": {side: len(track.forwards) for side, track in line.tracks.items()},
            "messages": len(line.flights),
        }
    return summary


def plot(rows: list[Row], path: Path) -> None:
    """Draw a picture for each way: the first at `path`, the other beside it."""
    for line, suffix in zip(timelines(rows).values(), ("", "-leaderless"), strict=True):
        draw_pipeline(line, path.with_stem(path.stem + suffix))


def timelines(rows: list[Row]) -> dict[str, Timeline]:
    """Return the timelines of the ways, from the events that the rows are."""
    lines = {}
    for (way,), group in grouped(rows, "way").items():
        traces: dict[str, list[Record]] = {side: [] for side in SIDES}
        for row in group:
            event = {key: each for key, each in row.items() if each is not None and key != "way"}
            record = from_object(event)
            traces[record.side].append(record)
        lines[way] = timeline(by_side([trace for trace in traces.values() if trace]))
    return lines
