"""`delta-z`: what handing the aggregation over saves, over the device's delay (DRAGON Fig. 3).

Lines are the scheduler's own formula, Eq. 8; points are the runtime in virtual time, which
aggregates on the one side and on the other while it replays drafts that are accepted at random at
those rates. It drafts ahead through a wait, which the formula does not know: they may differ.
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragonrt.control.scheduler import Aggregator, Estimate, latency_difference
from scripts.papers import charts
from scripts.papers.acceptances import Acceptances
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, averages, exactly, grouped, mean
from scripts.papers.parallel import measure_all
from scripts.papers.virtual_arena import Pace, replayed

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


@dataclass(frozen=True, slots=True)
class HandOverCase:
    """One point: acceptance rates of both sides, the device's delay, the seed of what is drawn."""

    acceptance: tuple[float, float]
    device_ms: float
    tokens: int
    sample: int


def expected_ms(acceptance: tuple[float, float], device_ms: float) -> float:
    """ΔZ of the device, in milliseconds per token."""
    device, cloud = acceptance
    estimate = Estimate(
        {"device": device_ms / 1e3, "cloud": CLOUD_MS / 1e3},
        {"device": device, "cloud": cloud},
        RTT_MS / 1e3,
    )
    return 1e3 * latency_difference("device", estimate)


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per pair of rates, delay and sample; without a sample, of the formula alone."""
    rows: list[Row] = [
        _row(rates, device_ms, None, None) for rates in ACCEPTANCES for device_ms in DEVICE_MS
    ]
    tokens = TOKENS_QUICK if settings.quick else TOKENS
    cases = [
        HandOverCase(rates, device_ms, tokens, settings.seed + sample)
        for rates in ACCEPTANCES
        for device_ms in MEASURED_MS
        for sample in range(settings.repeats)
    ]
    return rows + list(measure_all(measure, cases, progress))


def measure(case: HandOverCase) -> Row:
    """The difference of the two placements' milliseconds per token, on the same drafts."""
    chance = random.Random(f"{case.sample} {case.acceptance}")
    drawn = [tuple(chance.random() < rate for _ in range(case.tokens)) for rate in case.acceptance]
    pace = Pace(case.device_ms / 1e3, CLOUD_MS / 1e3, RTT_MS / 1e3)
    device_ms, cloud_ms = (
        1e3 * (replayed(Acceptances(*drawn), placement, pace, RUN_AHEAD).between_s or 0.0)
        for placement in (Aggregator.DEVICE, Aggregator.CLOUD)
    )
    return _row(case.acceptance, case.device_ms, case.sample, device_ms - cloud_ms)


def _row(
    acceptance: tuple[float, float], device_ms: float, sample: int | None, measured: float | None
) -> Row:
    return {
        "device_acceptance": acceptance[0],
        "cloud_acceptance": acceptance[1],
        "device_ms": device_ms,
        "sample": sample,
        "expected_ms": expected_ms(acceptance, device_ms),
        "measured_ms": measured,
    }


def summarise(rows: list[Row]) -> dict[str, Any]:
    """At each point what was measured and expected, and whether both choose the same side."""
    found: dict[str, Any] = {}
    keys = ("device_acceptance", "cloud_acceptance", "device_ms")
    measured = [row for row in rows if row["measured_ms"] is not None]
    means = averages(measured, "measured_ms", *keys)
    for key, group in grouped(measured, *keys).items():
        expected = mean(group, "expected_ms")
        found[f"acceptance {key[0]:g}/{key[1]:g}, device {key[2]:g} ms"] = {
            "expected_ms": round(expected, 3),
            "measured_ms": means[key].to_json(),
            "same_side": (means[key].value > 0) is (expected > 0),
        }
    same = sum(each["same_side"] for each in found.values())
    return {"points": len(found), "same_side": same, **found}


def plot(rows: list[Row], path: Path) -> None:
    """ΔZ over the device's delay: lines of Eq. 8, points of the runtime."""
    named = [row | {"rates": (row["device_acceptance"], row["cloud_acceptance"])} for row in rows]
    looks = charts.looks(ACCEPTANCES)
    curves = {
        (row["rates"], row["device_ms"]): exactly(row["expected_ms"])
        for row in named
        if row["sample"] is None
    }
    measured = [row for row in named if row["sample"] is not None]
    points = averages(measured, "measured_ms", "rates", "device_ms")
    with charts.picture(path, height_inches=4.2) as (_, axes):
        axis = axes[0, 0]
        for (device, cloud), look in looks.items():
            label = f"α device {device:g}, cloud {cloud:g}"
            line = charts.Look(look.colour, label=label)
            charts.lines(axis, curves, {(device, cloud): line})
            dots = charts.Look(look.colour, look.marker, "", label="_measured")
            charts.lines(axis, points, {(device, cloud): dots})
        axis.axhline(0.0, color=charts.GREY, linewidth=0.8)
        axis.axvline(CLOUD_MS, color=charts.GREY, linewidth=0.8, linestyle=":")
        axis.set(
            xlabel="device's delay of a draft (ms)",
            title=f"cloud {CLOUD_MS:g} ms per draft, round trip {RTT_MS:g} ms",
            ylabel="ΔZ (ms per token): above 0 the cloud aggregates",
        )
        axis.legend(fontsize=8)
