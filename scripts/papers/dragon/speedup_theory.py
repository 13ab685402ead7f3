"""`speedup-theory`: the speed-up that Theorem 6.2 promises, and the runtime's own (DRAGON Fig. 4).

The theorem counts one draft of the device after every decision. That is exact where the device's
drafts are rejected (acceptance 0, the filled points); where they are accepted the device has
drafted ahead while it waited, so that c_r < c_l ≤ c_r + rtt goes faster (hollow points).

Beside it: Algorithm 1 with drafts sampled from scripted distributions, against Eq. 7.
"""

import random
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt.control.scheduler import Aggregator, Estimate, expected_latency
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.testing.scripted import Script
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.intervals import Row, estimates, grouped, having
from scripts.papers.virtual_arena import Acceptances, Pace, played, replayed, scripted

NAME = "speedup-theory"
SUMMARY = "Speed-up over synchronous, against DRAGON's Theorem 6.2 and Eq. 7 (Fig. 4; 25 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

ACCEPTANCES = (0.5, 0.99)
LINKS_MS = ((10, 100), (10, 300), (30, 100), (30, 300))
"""The cloud's milliseconds per draft, and those of a round trip: Fig. 4's."""
DEVICE_MS = (5, 10, 20, 30, 50, 70, 90, 120, 150)
DEVICE_MS_QUICK = (10, 30, 50, 90, 150)
REFUSED, MOSTLY_ACCEPTED = 0.0, 0.85
RUN_AHEAD = 256
"""Far enough that the bound delays nothing: the theorem knows none."""

COMPARABLE_MS = ((40, 50), (50, 50), (60, 50))
"""Milliseconds per draft of the device and the cloud for Algorithm 1."""
ROUND_TRIPS_MS = (50, 150, 300)


@dataclass(frozen=True, slots=True)
class SpeedupCase:
    """One point: acceptance rates of both sides, or None for Algorithm 1 on scripted models."""

    acceptance: tuple[float, float] | None
    pace: Pace
    tokens: int
    sample: int


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
    tokens = settings.size(400, 200)

    def cases(points: Any, repeats: int) -> list[SpeedupCase]:
        return [
            SpeedupCase(rates, Pace(local / 1e3, remote / 1e3, rtt / 1e3), tokens, sample)
            for sample in range(settings.seed, settings.seed + repeats)
            for rates, local, remote, rtt in points
        ]

    device_ms = settings.size(DEVICE_MS, DEVICE_MS_QUICK)
    theorems = product(ACCEPTANCES, LINKS_MS, device_ms, (REFUSED, MOSTLY_ACCEPTED))
    points = [((own, rate), local, *link) for rate, link, local, own in theorems]
    comparable = [(None, *both, rtt) for both, rtt in product(COMPARABLE_MS, ROUND_TRIPS_MS)]
    all_cases = cases(points, settings.size(settings.repeats, 1))
    all_cases += cases(comparable, settings.repeats)
    return measure_all(measure, all_cases, progress, processes=True)


def measure(case: SpeedupCase) -> list[Row]:
    """Return one row."""
    pace = case.pace
    if case.acceptance is None:
        rule, device_acceptance = "algorithm1", None
        acceptance, token_s = _algorithm1(case)
        synchronous_s = eq7(0.0, pace)
    else:
        rule, (device_acceptance, acceptance) = "replayed", case.acceptance
        accepted = Acceptances(
            _shuffled(device_acceptance, case.tokens, 2 * case.sample),
            _shuffled(acceptance, case.tokens, 2 * case.sample + 1),
        )
        token_s, synchronous_s = (
            replayed(accepted, aggregator, pace, RUN_AHEAD).between_s or 0.0
            for aggregator in (Aggregator.DEVICE, Aggregator.SYNC)
        )
    return [
        {
            "rule": rule,
            "device_ms": round(1e3 * pace.device_s, 3),
            "cloud_ms": round(1e3 * pace.cloud_s, 3),
            "rtt_ms": round(1e3 * pace.rtt_s, 3),
            "device_acceptance": device_acceptance,
            "acceptance": acceptance,
            "sample": case.sample,
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


def _algorithm1(case: SpeedupCase) -> tuple[float, float]:
    """Return the cloud's acceptance rate and seconds per token of Algorithm 1 on the device."""
    settings = DragonSettings(
        rule="algorithm1",
        aggregator=Aggregator.DEVICE,
        codec="topp:0.95",
        run_ahead=RUN_AHEAD,
        follow=False,
    )
    script = Script(case.sample, sharpness=2.0, disagreement=0.7, stop=0.0)
    answer = played(
        Question(seed=case.sample, sampler=Sampler(temperature=1.0), max_tokens=case.tokens),
        settings,
        *(scripted(side, script, forward_s) for side, forward_s in case.pace.forward_s.items()),
        link=case.pace.link,
    )
    return answer.accepted("cloud") or 0.0, answer.between_s or 0.0


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return how far the points are from the theorem, by regime, and Algorithm 1 from Eq. 7."""
    replayed = [
        row | {"regime": _regime(Pace(row["device_ms"], row["cloud_ms"], row["rtt_ms"]))}
        for row in having(rows, rule="replayed")
    ]
    drafts = {REFUSED: "refused", MOSTLY_ACCEPTED: "mostly accepted"}
    groups = sorted(grouped(replayed, "regime", "device_acceptance").items())
    algorithm1 = having(rows, rule="algorithm1")
    acceptance = [row["acceptance"] for row in algorithm1]
    return {
        "speedup_over_theorem": {
            f"{REGIMES[regime]}, device's drafts {drafts[own]}": _deviations(
                [row["speedup"] / row["theorem"] for row in group]
            )
            for (regime, own), group in groups
        },
        "algorithm1_over_eq7": _deviations(
            [row["ms_per_token"] / row["eq7_ms_per_token"] for row in algorithm1]
        ),
        "algorithm1_acceptance": [round(min(acceptance), 3), round(max(acceptance), 3)],
    }


def _deviations(ratios: list[float]) -> dict[str, float | int]:
    return {
        "points": len(ratios),
        "lowest": round(min(ratios), 4),
        "median": round(float(np.median(ratios)), 4),
        "highest": round(max(ratios), 4),
    }


def plot(rows: list[Row], path: Path) -> None:
    """Draw a panel per acceptance rate: the theorem's curves and the runtime's points on them."""
    named = [row | {"link": (row["cloud_ms"], row["rtt_ms"])} for row in rows]
    panels = grouped(having(named, rule="replayed"), "acceptance")
    drafts = {REFUSED: "refused", MOSTLY_ACCEPTED: f"{MOSTLY_ACCEPTED:.0%} accepted"}
    curve_ms = np.linspace(1, max(row["device_ms"] for row in named) + 5, 300).tolist()
    with charts.picture(path, columns=len(panels), height_inches=4.4, legend=2) as (_, axes):
        for axis, ((acceptance,), group) in zip(axes[0], panels.items(), strict=True):
            looks = charts.looks(link for (link,) in grouped(group, "link"))
            for (remote, rtt), look in looks.items():
                curve = [theorem(acceptance, Pace(ms, remote, rtt)) for ms in curve_ms]
                label = f"theorem: cloud {remote:g} ms, round trip {rtt:g} ms"
                axis.plot(curve_ms, curve, color=look.colour, label=label)
            for own, name in drafts.items():
                filled = own == REFUSED
                own_rows = having(group, device_acceptance=own)
                hidden = {
                    link: replace(look, line="", filled=filled, label="_")
                    for link, look in looks.items()
                }
                found = estimates(own_rows, "speedup", "link", "device_ms")
                charts.lines(axis, found, hidden, intervals=False)
                label = f"runtime: device's drafts {name}"
                axis.plot([], [], **charts.Look(charts.GREY, "o", "", filled, label).style())
            axis.set(
                title=f"acceptance of the cloud's drafts {acceptance:g}",
                xlabel="device's decoding delay per draft (ms)",
                ylabel="speed-up over synchronous (times)",
            )
