"""`pipeline`: a snapshot of both sides' pipelines (DRAGON Fig. 9).

The link is that figure's: 500 ms of round trip, a sinusoidal jitter of a fifth of it with a period
of 20π seconds. In virtual time the device decodes in 100 ms, the cloud in 80 ms; in real time both
are as fast as the bundled model is here, and the latency is emulated on the device's end. With a
cloud that already runs elsewhere nothing is emulated, and only the device's side is seen: where
that cloud was started with --trace, `dragonrt trace` draws both.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragonrt.control.scheduler import Aggregator
from dragonrt.experiments.pipeline_picture import draw_pipeline
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import SIDES
from dragonrt.testing import loop
from dragonrt.testing.pair import SimulatedSide
from dragonrt.testing.scripted import Script
from dragonrt.traces.events import AnswerOpened, Drafted, Record, TraceStarted
from dragonrt.traces.file import read_trace
from dragonrt.traces.schema import SCHEMA, from_object, to_object
from dragonrt.traces.timeline import Timeline, aligned, timeline
from scripts.papers.arena import emulated
from scripts.papers.framework import Clock, ExperimentError, Progress, Settings
from scripts.papers.intervals import Row, grouped
from scripts.papers.virtual_arena import Pace, linked, scripted

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
    aggregator: Aggregator

    @property
    def settings(self) -> DragonSettings:
        return DragonSettings(rule=self.rule, aggregator=self.aggregator, follow=False)


WAYS = (
    Way("algorithm1, greedy", "", "algorithm1", Aggregator.GREEDY),
    Way("coupled, leaderless", "-leaderless", "coupled", Aggregator.BOTH),
)


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row for every event of both sides' traces (`dragonrt.traces.events` lists them)."""
    question = Question(
        prompt="a question",
        seed=settings.seed,
        sampler=Sampler(0.8),
        max_tokens=TOKENS_QUICK if settings.quick else TOKENS,
    )
    record = _record_real(question, settings) if settings.real else _record_virtual(question)
    found: list[Row] = []
    for done, (way, traces) in enumerate(zip(WAYS, record, strict=True), start=1):
        found += (
            {"way": way.name, **to_object(each)}
            for trace in traces
            for each in trace
            if not isinstance(each.event, Drafted)
        )
        progress(done, len(WAYS))
    columns = list(dict.fromkeys(name for row in found for name in row))
    return [{column: row.get(column) for column in columns} for row in found]


def _record_virtual(question: Question) -> Iterator[list[list[Record]]]:
    """Both sides' traces of one simulated answer in each way, on the virtual clock."""
    for way in WAYS:
        started = TraceStarted(SCHEMA, "", "simulated", "virtual")
        traces = {side: [Record(0.0, side, 0, started)] for side in SIDES}
        sides = [
            scripted(side, replace(SCRIPT, seed=question.seed), PACE.forward_s[side], (sink,))
            for side, sink in ((side, traces[side].append) for side in SIDES)
        ]
        loop.run(_answer(question, way, sides))
        yield list(traces.values())


async def _answer(question: Question, way: Way, sides: Sequence[SimulatedSide]) -> None:
    async with linked(sides[0], sides[1:], PACE.link) as arena:
        await asyncio.sleep(2.0)  # the round trip is known before the question, as in a chat
        await arena.ask(question, way.settings)


def _record_real(question: Question, settings: Settings) -> Iterator[list[list[Record]]]:
    """The traces of an answer in each way, over one connection; kept beside the results.

    Of both sides, or the device's alone where the cloud runs elsewhere.
    """
    from dragonrt import bundled
    from dragonrt.experiments.cloud_process import cloud_process
    from dragonrt.node.endpoints import Address
    from dragonrt.node.process import complete_library
    from scripts.papers.model_sides import run
    from scripts.papers.sample_sides import LoadedSide, sample_settings

    paths = {side: settings.results / f"{side}.jsonl" for side in SIDES}
    question = replace(question, prompt=bundled.questions()[0].text)
    side_settings = replace(sample_settings("device", settings.model), trace=paths["device"])

    async def ask(device: LoadedSide, address: Address) -> None:
        async with device.connected_to(address) as arena:
            await asyncio.sleep(1.0)  # the round trip is known before the question
            for way in WAYS:
                await arena.ask(question, way.settings)

    if settings.cloud is not None:
        del paths["cloud"]
        run(ask(LoadedSide.load(side_settings), settings.cloud), virtual=False)
    else:
        documents = ("--documents", str(bundled.documents("cloud")))
        trace = ("--trace", str(paths["cloud"]))
        device = LoadedSide.load(side_settings)
        complete_library(sample_settings("cloud", settings.model), device.model)
        with cloud_process(*documents, *trace, model=settings.model) as cloud:
            address = Address("127.0.0.1", cloud.wait_ready(), emulate=emulated(PACE.link))
            run(ask(device, address), virtual=False)
    traces = [read_trace(path) for path in paths.values()]
    asked = [each.session for each in traces[0] if isinstance(each.event, AnswerOpened)]
    if len(asked) != len(WAYS):
        raise ExperimentError("the cloud was lost while recording: run it again")
    for session in asked:
        yield [[each for each in trace if each.session in (0, session)] for trace in traces]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """What the pictures show, in numbers, by way of answering."""
    summary = {}
    for way, line in _timelines(rows).items():
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
    """A picture for each way: the first at `path`, the others beside it."""
    lines = _timelines(rows)
    for way in WAYS:
        draw_pipeline(lines[way.name], path.with_stem(path.stem + way.picture))


def _timelines(rows: list[Row]) -> dict[str, Timeline]:
    """The timelines of the ways, from the events that the rows are."""
    lines = {}
    for (way,), group in grouped(rows, "way").items():
        records = [
            from_object(
                {key: each for key, each in row.items() if each is not None and key != "way"}
            )
            for row in group
        ]
        traces = [[each for each in records if each.side == side] for side in SIDES]
        lines[way] = timeline(aligned([trace for trace in traces if trace]))
    return lines
