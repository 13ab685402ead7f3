"""`scheduling`: who should aggregate, over latency and the two sides' speeds (DRAGON Fig. 8).

The real runtime in virtual time replays the same acceptance sequences under every scheduler. They
were recorded on a bundled model that answers the sample questions (see `recorded_acceptance`) and
are kept beside the results as acceptances.csv: a later run replays them without the model. For
stretches of the answers one side's documents hold what is said, and its drafts are nearly always
accepted, the other's less than half the time (SPEC 1.7). Of a model nothing else is in the figure:
the paper replays each model's own delays, which one machine does not have of two, and here they are
the same stated ones for every model.
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragonrt.control.scheduler import Aggregator
from scripts.papers import charts
from scripts.papers.acceptances import Acceptances
from scripts.papers.dragon.recorded_acceptance import recorded, source
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, distinct, estimates, grouped, mean
from scripts.papers.parallel import measure_all
from scripts.papers.virtual_arena import JITTER_PERIOD_S, Pace, replayed

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
EXTRA_MS = (0, 100, 200, 300, 400)
EXTRA_MS_QUICK = (0, 200, 400)
BASE_RTT_MS = 10.0
JITTER = 0.2
"""Amplitude, as a part of the latency."""
TOKENS = 100
RUN_AHEAD = 32
SEQUENCES = 10
"""For every repeat; a quick run has QUICK_SEQUENCES in all."""
QUICK_SEQUENCES = 4


@dataclass(frozen=True, slots=True)
class SchedulingCase:
    """One run: times are milliseconds, `sequence` is the seed of `acceptances`."""

    device_ms: float
    cloud_ms: float
    extra_ms: float
    scheduler: str
    sequence: int
    acceptances: Acceptances


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per sequence, scheduler, latency and pair of speeds."""

    count = QUICK_SEQUENCES if settings.quick else SEQUENCES * settings.repeats
    points = [
        (device_ms, cloud_ms, extra_ms, scheduler)
        for device_ms, cloud_ms in SPEEDS_MS
        for extra_ms in (EXTRA_MS_QUICK if settings.quick else EXTRA_MS)
        for scheduler in SCHEDULERS
    ]
    total = count * (1 + len(points))
    seeds = range(settings.seed, settings.seed + count)
    kept = settings.results / "acceptances.csv"
    sequences = recorded(settings.model, seeds, TOKENS, kept, lambda done: progress(done, total))
    cases = [
        SchedulingCase(*point, seed, acceptances)
        for seed, acceptances in zip(seeds, sequences, strict=True)
        for point in points
    ]
    rows = measure_all(measure, cases, lambda done, _: progress(count + done, total))
    return [{"source": source(settings.model)} | row for row in rows]


def measure(case: SchedulingCase) -> Row:
    """One row: seconds from the question to the device's last token."""
    acceptances = case.acceptances
    pace = Pace(
        case.device_ms / 1e3,
        case.cloud_ms / 1e3,
        (BASE_RTT_MS + case.extra_ms) / 1e3,
        JITTER,
        start_s=random.Random(case.sequence).uniform(0.0, JITTER_PERIOD_S),
    )
    answer = replayed(acceptances, SCHEDULERS[case.scheduler], pace, RUN_AHEAD)
    return {
        "device_ms": case.device_ms,
        "cloud_ms": case.cloud_ms,
        "extra_ms": case.extra_ms,
        "scheduler": case.scheduler,
        "sequence": case.sequence,
        "device_acceptance": sum(acceptances.device) / TOKENS,
        "cloud_acceptance": sum(acceptances.cloud) / TOKENS,
        "switches": answer.counts.switches,
        "seconds": answer.seconds,
    }


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Median seconds of every point, and greedy and leaderless against the best fixed side."""
    medians = estimates(rows, "seconds", "device_ms", "cloud_ms", "extra_ms", "scheduler")
    points: dict[str, Any] = {}
    for device_ms, cloud_ms, extra_ms in grouped(rows, "device_ms", "cloud_ms", "extra_ms"):
        found = {name: medians[device_ms, cloud_ms, extra_ms, name] for name in SCHEDULERS}
        fixed = min(found[name].value for name in ("device", "cloud"))
        points[f"device {device_ms:g} ms, cloud {cloud_ms:g} ms, extra {extra_ms:g} ms"] = {
            "seconds": {name: each.to_json() for name, each in found.items()},
            "greedy_over_best_fixed": round(found["greedy"].value / fixed, 4),
            "leaderless_over_best_fixed": round(found["leaderless"].value / fixed, 4),
        }
    return {
        "tokens": TOKENS,
        "acceptance_recorded_from": rows[0]["source"],
        "sequences": len(distinct(rows, "sequence")),
        "acceptance": {
            side: round(mean(rows, f"{side}_acceptance"), 3) for side in ("device", "cloud")
        },
        "greedy_over_best_fixed": _range(points, "greedy_over_best_fixed"),
        "leaderless_over_best_fixed": _range(points, "leaderless_over_best_fixed"),
        "points": points,
    }


def _range(points: dict[str, Any], name: str) -> list[float]:
    values = [point[name] for point in points.values()]
    return [min(values), max(values)]


def plot(rows: list[Row], path: Path) -> None:
    """A panel per pair of speeds: seconds over extra latency, a line per scheduler."""
    panels = grouped(rows, "device_ms", "cloud_ms")
    with charts.picture(path, columns=len(panels), legend=len(SCHEDULERS), sharey=True) as (
        figure,
        axes,
    ):
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
