"""`speedup-theory`: the speed-up that Theorem 6.2 promises, and the runtime's own (DRAGON Fig. 4).

The theorem counts one draft of the device after every decision. That is exact where the device's
drafts are rejected (filled points); where they are accepted the device has drafted ahead while it
waited, so that c_r < c_l ≤ c_r + rtt goes faster (hollow points).
"""

import random
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt.control.scheduler import Aggregator, Estimate, expected_latency
from dragonrt.side import Side
from scripts.lab.arena import Acceptances, Pace, replayed
from scripts.lab.intervals import Row, estimates, grouped
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all

NAME = "speedup-theory"
SUMMARY = "Speed-up over synchronous, against DRAGON's Theorem 6.2 (Fig. 4; 20 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

ACCEPTANCES = (0.5, 0.99)
LINKS_MS = ((10, 100), (10, 300), (30, 100), (30, 300))
"""The cloud's milliseconds per draft, and those of a round trip: Fig. 4's."""
DEVICE_MS = (5, 10, 20, 30, 50, 70, 90, 120, 150)
DEVICE_MS_QUICK = (10, 30, 50, 90, 150)
REFUSED, MOSTLY_ACCEPTED = 0.0, 0.85
RUN_AHEAD = 256
"""Far enough that the bound delays nothing: the theorem knows none."""


Case = tuple[tuple[float, float], Pace, int, int]
"""Acceptance rates of both sides, their pace, tokens and the sample."""


def _regime(pace: Pace) -> int:
    """Return the case of Theorem 6.2 by the device's delay: 0, 1 or 2."""
    return (pace.device_s > pace.cloud_s) + (pace.device_s > pace.cloud_s + pace.rtt_s)


REGIMES = ("c_l <= c_r", "c_r < c_l <= c_r + rtt", "c_r + rtt < c_l")


def theorem(acceptance: float, pace: Pace) -> float:
    """Return S of Theorem 6.2: the device aggregates, the cloud's drafts are accepted so often."""
    waited = (
        1 / (1 + pace.cloud_s / pace.rtt_s),
        1 - pace.device_s / (pace.cloud_s + pace.rtt_s),
        0.0,
    )
    return 1 / (1 - waited[_regime(pace)] * acceptance)


def eq7(acceptance: float, pace: Pace) -> float:
    """Return Z of the device in seconds per token (DRAGON Eq. 7)."""
    accepted: dict[Side, float] = {"device": 0.0, "cloud": acceptance}
    return expected_latency("device", Estimate(pace.forward_s, accepted, pace.rtt_s))


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per point and sample; times are ms per token between first and last."""
    device_ms = settings.size(DEVICE_MS, DEVICE_MS_QUICK)
    cases = [
        (
            (own, rate),
            Pace(local / 1e3, remote / 1e3, rtt / 1e3),
            settings.size(400, 200),
            settings.seed + sample,
        )
        for sample in range(settings.size(settings.repeats, 1))
        for rate, (remote, rtt), local, own in product(
            ACCEPTANCES, LINKS_MS, device_ms, (REFUSED, MOSTLY_ACCEPTED)
        )
    ]
    return measure_all(measure, cases, progress, processes=True)


def measure(case: Case) -> list[Row]:
    """Return one row."""
    (own, acceptance), pace, tokens, sample = case
    accepted = Acceptances(
        _shuffled(own, tokens, 2 * sample), _shuffled(acceptance, tokens, 2 * sample + 1)
    )
    token_s, synchronous_s = (
        replayed(accepted, aggregator, pace, RUN_AHEAD).between_s or 0.0
        for aggregator in (Aggregator.DEVICE, Aggregator.SYNC)
    )
    return [
        {
            "device_ms": round(1e3 * pace.device_s, 3),
            "cloud_ms": round(1e3 * pace.cloud_s, 3),
            "rtt_ms": round(1e3 * pace.rtt_s, 3),
            "regime": REGIMES[_regime(pace)],
            "device_acceptance": own,
            "acceptance": acceptance,
            "sample": sample,
            "ms_per_token": 1e3 * token_s,
            "eq7_ms_per_token": 1e3 * eq7(acceptance, pace),
            "speedup": synchronous_s / token_s,
            "theorem": theorem(acceptance, pace),
        }
    ]


def _shuffled(acceptance: float, tokens: int, seed: int) -> tuple[bool, ...]:
    """Return exactly that share of acceptances, in random order."""
    accepted = [number < round(acceptance * tokens) for number in range(tokens)]
    random.Random(seed).shuffle(accepted)
    return tuple(accepted)


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return how far the points are from the theorem, by regime and acceptance on the device."""
    found: dict[str, Any] = {}
    for (regime, own), group in grouped(rows, "regime", "device_acceptance").items():
        ratios = [row["speedup"] / row["theorem"] for row in group]
        found.setdefault(regime, {})[f"device's drafts {own:.0%} accepted"] = {
            "points": len(ratios),
            "lowest": round(min(ratios), 4),
            "median": round(float(np.median(ratios)), 4),
            "highest": round(max(ratios), 4),
        }
    return {"speedup_over_theorem": found}


def plot(rows: list[Row], path: Path) -> None:
    """Draw a panel per acceptance rate: the theorem's curves and the runtime's points on them."""
    named = [row | {"link": (row["cloud_ms"], row["rtt_ms"])} for row in rows]
    panels = grouped(named, "acceptance")
    curve_ms = np.linspace(1, max(row["device_ms"] for row in named) + 5, 300).tolist()
    with charts.picture(path, columns=len(panels), height_inches=4.4, legend=2) as (_, axes):
        for axis, ((acceptance,), group) in zip(axes[0], panels.items(), strict=True):
            looks = charts.looks(link for (link,) in grouped(group, "link"))
            for (remote, rtt), look in looks.items():
                curve = [theorem(acceptance, Pace(ms, remote, rtt)) for ms in curve_ms]
                label = f"theorem: cloud {remote:g} ms, round trip {rtt:g} ms"
                axis.plot(curve_ms, curve, color=look.colour, label=label)
            for (own,), some in grouped(group, "device_acceptance").items():
                same: dict[str, Any] = {"line": "", "filled": own == REFUSED}
                hidden = {link: replace(look, **same, label="_") for link, look in looks.items()}
                found = estimates(some, "speedup", "link", "device_ms")
                charts.lines(axis, found, hidden, intervals=False)
                label = f"runtime: device's drafts {own:.0%} accepted"
                axis.plot([], [], **charts.Look(charts.GREY, "o", label=label, **same).style())
            axis.set(
                title=f"acceptance of the cloud's drafts {acceptance:g}",
                xlabel="device's decoding delay per draft (ms)",
                ylabel="speed-up over synchronous (times)",
            )
