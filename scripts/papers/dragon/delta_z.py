"""`delta-z`: what handing the aggregation over saves, over the device's delay (DRAGON Fig. 3).

Lines are the scheduler's own formula, Eq. 8; points are the runtime in virtual time, which
aggregates on the one side and on the other while it replays drafts that are accepted at random at
those rates. It drafts ahead through a wait, which the formula does not know: they may differ.
"""

import random
from itertools import product
from pathlib import Path
from typing import Any

from dragonrt.control.scheduler import Aggregator, Estimate, latency_difference
from scripts.lab.arena import Acceptances, Pace, replayed_ms
from scripts.lab.intervals import Row, averages, exactly, grouped, mean, table
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all

NAME = "delta-z"
SUMMARY = "What handing over saves per token, by delays and acceptance (DRAGON Fig. 3; 3 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

CLOUD_MS, RTT_MS = 60.0, 100.0
DEVICE_MS = tuple(range(0, 261, 10))
MEASURED_MS = (20, 60, 110, 160, 200)
"""Of these delays of the device there are points."""
ACCEPTANCES = ((0.4, 0.8), (0.6, 0.6), (0.8, 0.4))
"""Of the device's drafts, and of the cloud's."""
TOKENS, TOKENS_QUICK = 200, 60
RUN_AHEAD = 32


Case = tuple[tuple[float, float], float, int | None, int]
"""Acceptance rates of both sides, the device's delay, the seed of what is drawn, tokens."""


def expected_ms(acceptance: tuple[float, float], device_ms: float) -> float:
    """Return ΔZ of the device, in milliseconds per token."""
    device, cloud = acceptance
    estimate = Estimate(
        {"device": device_ms / 1e3, "cloud": CLOUD_MS / 1e3},
        {"device": device, "cloud": cloud},
        RTT_MS / 1e3,
    )
    return 1e3 * latency_difference("device", estimate)


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per pair of rates, delay and sample; without a sample, of the formula alone."""
    tokens = settings.size(TOKENS, TOKENS_QUICK)
    samples = range(settings.seed, settings.seed + settings.repeats)
    cases: list[Case] = [(*point, None, 0) for point in product(ACCEPTANCES, DEVICE_MS)]
    cases += [(*point, tokens) for point in product(ACCEPTANCES, MEASURED_MS, samples)]
    return measure_all(measure, cases, progress, processes=True)


def measure(case: Case) -> list[Row]:
    """Return the difference of both placements' milliseconds per token, on the same drafts."""
    (rates, device_ms, sample, tokens), measured = case, None
    if sample is not None:
        chance = random.Random(f"{sample} {rates}")
        drawn = Acceptances(
            *(tuple(chance.random() < rate for _ in range(tokens)) for rate in rates)
        )
        pace = Pace(device_ms / 1e3, CLOUD_MS / 1e3, RTT_MS / 1e3)
        measured = replayed_ms(drawn, Aggregator.DEVICE, pace, RUN_AHEAD)
        measured -= replayed_ms(drawn, Aggregator.CLOUD, pace, RUN_AHEAD)
    device, cloud = rates
    return [
        {
            "device_acceptance": device,
            "cloud_acceptance": cloud,
            "device_ms": device_ms,
            "sample": sample,
            "expected_ms": expected_ms(rates, device_ms),
            "measured_ms": measured,
        }
    ]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return what was measured and expected, and at how many points both choose the same side."""
    keys = ("device_acceptance", "cloud_acceptance", "device_ms")
    columns = ("measured_ms", "expected_ms")
    measured = [row for row in rows if row["measured_ms"] is not None]
    groups = grouped(measured, *keys).values()
    chosen = [{mean(group, column) > 0 for column in columns} for group in groups]
    return {
        "points": len(chosen),
        "same_side": sum(len(each) == 1 for each in chosen),
        "means": table(measured, *keys, mean=columns),
    }


def plot(rows: list[Row], path: Path) -> None:
    """Draw ΔZ over the device's delay: lines of Eq. 8, points of the runtime."""
    named = [row | {"rates": (row["device_acceptance"], row["cloud_acceptance"])} for row in rows]
    curves = {(row["rates"], row["device_ms"]): exactly(row["expected_ms"]) for row in named}
    points = averages(named, "measured_ms", "rates", "device_ms")
    with charts.picture(path, height_inches=4.2) as (_, axes):
        axis = axes[0, 0]
        for rates, look in charts.looks(ACCEPTANCES).items():
            label = "α device {:g}, cloud {:g}".format(*rates)
            charts.lines(axis, curves, {rates: charts.Look(look.colour, label=label)})
            dots = charts.Look(look.colour, look.marker, "", label="_measured")
            charts.lines(axis, points, {rates: dots})
        axis.axhline(0.0, color=charts.GREY, linewidth=0.8)
        axis.axvline(CLOUD_MS, color=charts.GREY, linewidth=0.8, linestyle=":")
        axis.set(
            xlabel="device's delay of a draft (ms)",
            title=f"cloud {CLOUD_MS:g} ms per draft, round trip {RTT_MS:g} ms",
            ylabel="ΔZ (ms per token): above 0 the cloud aggregates",
        )
        axis.legend(fontsize=8)
