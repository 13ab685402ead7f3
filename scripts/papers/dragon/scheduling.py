"""`scheduling`: who should aggregate, over latency and the two sides' speeds (DRAGON Fig. 8).

The runtime in virtual time replays the same acceptance sequences under every scheduler. They are
recorded on a model that answers the sample questions on both sides, and kept beside the results as
acceptances.csv: what is accepted depends on neither the network nor the scheduler (SPEC 0).
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from dragonrt import bundled
from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import SIDES
from dragonrt.testing import loop
from dragonrt.traces.events import TokenDecided
from scripts.lab.arena import JITTER_PERIOD_S, Acceptances, Pace, linked, replayed
from scripts.lab.intervals import Row, distinct, estimates, grouped, having, mean, table
from scripts.lab.model_sides import LoadedSide, document_side
from scripts.papers import charts
from scripts.papers.framework import (
    Clock,
    ExperimentError,
    Progress,
    Settings,
    measure_all,
    read_rows,
    write_rows,
)

NAME = "scheduling"
SUMMARY = "Seconds for 100 tokens by aggregator, latency and speeds (DRAGON Fig. 8; 50 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

SCHEDULERS = {
    "cloud": Aggregator.CLOUD,
    "random": Aggregator.RANDOM,
    "device": Aggregator.DEVICE,
    "greedy": Aggregator.GREEDY,
    "leaderless": Aggregator.BOTH,
}
SPEEDS_MS = ((30, 30), (60, 30), (120, 30))
"""Milliseconds per draft of the device and the cloud."""
EXTRA_MS, EXTRA_MS_QUICK = (0, 100, 200, 300, 400), (0, 200, 400)
BASE_RTT_MS = 10.0
JITTER = 0.2
"""Amplitude, as a part of the latency."""
TOKENS = 100
RUN_AHEAD = 32
SEQUENCES, QUICK_SEQUENCES = 10, 4
"""For every repeat; of a quick run in all."""

TEMPERATURE, LONGEST_ANSWER = 0.8, 64
DECODE_S = 0.01
"""Of virtual time while recording: nothing recorded depends on it."""


KEYS = ("device_ms", "cloud_ms", "extra_ms", "scheduler", "sequence")
"""Of a case: times are milliseconds, `sequence` is the seed of its acceptances."""


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per sequence, scheduler, latency and pair of speeds."""
    extra_ms = settings.size(EXTRA_MS, EXTRA_MS_QUICK)
    grid = product(SPEEDS_MS, extra_ms, SCHEDULERS)
    points = [(device, cloud, extra, name) for (device, cloud), extra, name in grid]
    count = settings.size(SEQUENCES * settings.repeats, QUICK_SEQUENCES)
    total = count * (1 + len(points))
    seeds = range(settings.seed, settings.seed + count)
    kept = settings.results / "acceptances.csv"
    sequences = recorded(settings.model, seeds, TOKENS, kept, lambda done, _: progress(done, total))
    cases = [
        (dict(zip(KEYS, (*point, seed), strict=True)), acceptances)
        for seed, acceptances in zip(seeds, sequences, strict=True)
        for point in points
    ]
    rows = measure_all(
        measure, cases, lambda done, _: progress(count + done, total), processes=True
    )
    return [{"source": source(settings.model)} | row for row in rows]


def measure(case: tuple[Row, Acceptances]) -> list[Row]:
    """Return one row: seconds from the question to the device's last token."""
    row, acceptances = case
    pace = Pace(
        row["device_ms"] / 1e3,
        row["cloud_ms"] / 1e3,
        (BASE_RTT_MS + row["extra_ms"]) / 1e3,
        JITTER,
        start_s=random.Random(row["sequence"]).uniform(0.0, JITTER_PERIOD_S),
    )
    answer = replayed(acceptances, SCHEDULERS[row["scheduler"]], pace, RUN_AHEAD)
    accepted = asdict(acceptances)
    shares = {f"{side}_acceptance": sum(each) / TOKENS for side, each in accepted.items()}
    return [row | shares | {"switches": answer.counts.switches, "seconds": answer.seconds}]


# Acceptance sequences.


def source(model: str) -> str:
    """Return the name of the recordings of that model."""
    return f"{model} on the sample questions, coupled rule, temperature {TEMPERATURE}"


def recorded(
    model: str, seeds: Sequence[int], tokens: int, path: Path, progress: Progress
) -> list[Acceptances]:
    """Return a sequence of so many tokens for each seed."""
    try:
        rows = read_rows(path)
    except ExperimentError:
        rows = []
    own = [row for row in rows if row.get("source") == source(model)]
    kept = {seed: len(some) for (seed,), some in grouped(own, "sequence").items()}
    if any(kept.get(seed) != tokens for seed in seeds):
        sides = LoadedSide.both(model)

        def record(seed: int) -> Iterator[Row]:
            for step, each in enumerate(loop.run(_decisions(*sides, tokens, seed))):
                accepted: Row = {side: bool(each.accepted(side)) for side in SIDES}
                yield {"source": source(model), "sequence": seed, "step": step} | accepted

        own = measure_all(record, seeds, progress)
        write_rows([row for row in rows if row["source"] != source(model)] + own, path)
    sequences = [having(own, sequence=seed) for seed in seeds]
    return [
        Acceptances(*(tuple(row[side] for row in some) for side in SIDES)) for some in sequences
    ]


async def _decisions(
    device: LoadedSide, cloud: LoadedSide, tokens: int, seed: int
) -> list[TokenDecided]:
    """Answer the sample questions in random order until there are so many decisions."""
    chance = random.Random(seed)
    questions = [question.text for question in bundled.questions()]
    decided: list[TokenDecided] = []
    left: list[str] = []
    async with linked(document_side(device, DECODE_S), [document_side(cloud, DECODE_S)]) as arena:
        while len(decided) < tokens:
            left = left or chance.sample(questions, len(questions))
            question = Question(
                prompt=left.pop(),
                seed=chance.getrandbits(32),
                sampler=Sampler(TEMPERATURE),
                max_tokens=LONGEST_ANSWER,
                stop_tokens=tuple(device.model.stop_tokens),
            )
            given = await arena.ask(question, DragonSettings(aggregator=Aggregator.SYNC))
            decided += (event for _, event in given.answer.decisions)
    return decided[:tokens]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return median seconds, and greedy and leaderless against the best fixed side."""
    keys = KEYS[:3]
    over: dict[str, list[float]] = {"greedy": [], "leaderless": []}
    for group in grouped(rows, *keys).values():
        medians = estimates(group, "seconds", "scheduler")
        fixed = min(medians["device",].value, medians["cloud",].value)
        for name, ratios in over.items():
            ratios.append(round(medians[name,].value / fixed, 4))
    return {
        "tokens": TOKENS,
        "acceptance_recorded_from": rows[0]["source"],
        "sequences": len(distinct(rows, "sequence")),
        "acceptance": {side: round(mean(rows, f"{side}_acceptance"), 3) for side in SIDES},
        **{f"{name}_over_best_fixed": [min(all_), max(all_)] for name, all_ in over.items()},
        "points": table(rows, *keys, "scheduler", median=["seconds"]),
    }


def plot(rows: list[Row], path: Path) -> None:
    """Draw a panel per pair of speeds: seconds over extra latency, a line per scheduler."""
    panels = grouped(rows, "device_ms", "cloud_ms")
    size: dict[str, Any] = {"columns": len(panels), "legend": len(SCHEDULERS)}
    with charts.picture(path, **size, sharey=True) as (figure, axes):
        for axis, ((device_ms, cloud_ms), group) in zip(axes[0], panels.items(), strict=True):
            found = estimates(group, "seconds", "scheduler", "extra_ms")
            charts.lines(axis, found, charts.looks(SCHEDULERS))
            axis.set(
                title=f"device {device_ms:g} ms,\ncloud {cloud_ms:g} ms per draft",
                xlabel="extra round trip (ms)",
            )
        label = f"seconds for {TOKENS} tokens (median, 95 %)"
        axes[0, 0].set(ylabel=label, ylim=(0, None))
        count = len(distinct(rows, "sequence"))
        figure.suptitle(f"{count} acceptance sequences recorded: {rows[0]['source']}", fontsize=9)
