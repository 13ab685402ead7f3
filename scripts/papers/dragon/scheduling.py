"""`scheduling`: who should aggregate, over latency and the two sides' speeds (DRAGON Fig. 8).

The real runtime in virtual time replays the same acceptance sequences under every scheduler. They
are recorded on a model that answers the sample questions on both sides, and kept beside the results
as acceptances.csv: a later run replays them without the model. The coupled rule and the synchronous
scheduler compare both sides' drafts at every step; what is accepted depends on neither the network
nor the scheduler (SPEC 0). A sequence is that of consecutive answers, cut to its length.

For stretches of the answers one side's documents hold what is said, and its drafts are nearly
always accepted, the other's less than half the time (SPEC 1.7). The paper replays each model's own
delays; here they are the same stated ones for every model.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from dragonrt import bundled
from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import SIDES
from dragonrt.testing import loop
from dragonrt.traces.events import TokenDecided
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
from scripts.papers.intervals import Row, distinct, estimates, grouped, having, mean
from scripts.papers.model_sides import document_side
from scripts.papers.sample_sides import LoadedSide
from scripts.papers.virtual_arena import JITTER_PERIOD_S, Acceptances, Pace, linked, replayed

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


@dataclass(frozen=True, slots=True)
class SchedulingCase:
    """One run: times are milliseconds, `sequence` is the seed of `acceptances`."""

    speeds_ms: tuple[float, float]
    extra_ms: float
    scheduler: str
    sequence: int
    acceptances: Acceptances


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per sequence, scheduler, latency and pair of speeds."""
    extra_ms = settings.size(EXTRA_MS, EXTRA_MS_QUICK)
    points = list(product(SPEEDS_MS, extra_ms, SCHEDULERS))
    count = settings.size(SEQUENCES * settings.repeats, QUICK_SEQUENCES)
    total = count * (1 + len(points))
    seeds = range(settings.seed, settings.seed + count)
    kept = settings.results / "acceptances.csv"
    sequences = recorded(settings.model, seeds, TOKENS, kept, lambda done, _: progress(done, total))
    cases = [
        SchedulingCase(*point, seed, acceptances)
        for seed, acceptances in zip(seeds, sequences, strict=True)
        for point in points
    ]
    rows = measure_all(
        measure, cases, lambda done, _: progress(count + done, total), processes=True
    )
    return [{"source": source(settings.model)} | row for row in rows]


def measure(case: SchedulingCase) -> list[Row]:
    """Return one row: seconds from the question to the device's last token."""
    acceptances, (device_ms, cloud_ms) = case.acceptances, case.speeds_ms
    pace = Pace(
        device_ms / 1e3,
        cloud_ms / 1e3,
        (BASE_RTT_MS + case.extra_ms) / 1e3,
        JITTER,
        start_s=random.Random(case.sequence).uniform(0.0, JITTER_PERIOD_S),
    )
    answer = replayed(acceptances, SCHEDULERS[case.scheduler], pace, RUN_AHEAD)
    return [
        {
            "device_ms": device_ms,
            "cloud_ms": cloud_ms,
            "extra_ms": case.extra_ms,
            "scheduler": case.scheduler,
            "sequence": case.sequence,
            "device_acceptance": sum(acceptances.device) / TOKENS,
            "cloud_acceptance": sum(acceptances.cloud) / TOKENS,
            "switches": answer.counts.switches,
            "seconds": answer.seconds,
        }
    ]


# Acceptance sequences.


def source(model: str) -> str:
    """Return the name of the recordings of that model."""
    return f"{model} on the sample questions, coupled rule, temperature {TEMPERATURE}"


def recorded(
    model: str, seeds: Sequence[int], tokens: int, path: Path, progress: Progress
) -> list[Acceptances]:
    """Return a sequence of so many tokens for each seed.

    They are kept as a CSV at `path`, beside those of other models, and recorded if they are not
    there.
    """
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
    return [_sequence(having(own, sequence=seed)) for seed in seeds]


def _sequence(rows: Iterable[Row]) -> Acceptances:
    device, cloud = zip(*((row["device"], row["cloud"]) for row in rows), strict=True)
    return Acceptances(device, cloud)


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
    points: dict[str, Any] = {}
    ratios: dict[str, list[float]] = {"greedy": [], "leaderless": []}
    for key, group in grouped(rows, "device_ms", "cloud_ms", "extra_ms").items():
        seconds = {name: each for (name,), each in estimates(group, "seconds", "scheduler").items()}
        fixed = min(seconds[name].value for name in ("device", "cloud"))
        over = {name: round(seconds[name].value / fixed, 4) for name in ratios}
        for name, ratio in over.items():
            ratios[name].append(ratio)
        points["device {:g} ms, cloud {:g} ms, extra {:g} ms".format(*key)] = {
            "seconds": {name: each.to_json() for name, each in seconds.items()},
            **{f"{name}_over_best_fixed": ratio for name, ratio in over.items()},
        }
    return {
        "tokens": TOKENS,
        "acceptance_recorded_from": rows[0]["source"],
        "sequences": len(distinct(rows, "sequence")),
        "acceptance": {side: round(mean(rows, f"{side}_acceptance"), 3) for side in SIDES},
        **{f"{name}_over_best_fixed": [min(all_), max(all_)] for name, all_ in ratios.items()},
        "points": points,
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
