"""`speedup-theory`: the speed-up that Theorem 6.2 promises, and the runtime's own (DRAGON Fig. 4).

The theorem counts one draft of the device after every decision. That is exact where the device's
drafts are refused (acceptance 0, the filled points); where they are accepted the device has
drafted ahead while it waited, so that c_r < c_l ≤ c_r + rtt goes faster (hollow points).

Beside it: Algorithm 1 with drafts sampled from scripted distributions, against Eq. 7.
"""

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt.control.scheduler import Aggregator, Estimate, expected_latency
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.scripted import Script
from scripts.papers import charts
from scripts.papers.acceptances import Acceptances
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, estimates, grouped, having
from scripts.papers.parallel import measure_all
from scripts.papers.virtual_arena import Pace, played, replayed, scripted

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
"""Far enough that the bound holds nobody up: the theorem knows none."""

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


def theorem(acceptance: float, pace: Pace) -> float:
    """S of Theorem 6.2: aggregation on the device, the cloud's drafts accepted so often."""
    local_s, remote_s, rtt_s = pace.device_s, pace.cloud_s, pace.rtt_s
    if local_s <= remote_s:
        return 1 / (1 - acceptance / (1 + remote_s / rtt_s))
    if local_s <= remote_s + rtt_s:
        return 1 / (1 - (1 - local_s / (remote_s + rtt_s)) * acceptance)
    return 1.0


def eq7(acceptance: float, pace: Pace) -> float:
    """Z of the device in seconds per token (DRAGON Eq. 7)."""
    return expected_latency(
        "device",
        Estimate(
            decode_s={"device": pace.device_s, "cloud": pace.cloud_s},
            acceptance={"device": 0.0, "cloud": acceptance},
            rtt_s=pace.rtt_s,
        ),
    )


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per point and sample; times are milliseconds per token between first and last."""
    tokens = 200 if settings.quick else 400
    samples = 1 if settings.quick else settings.repeats
    device_ms = DEVICE_MS_QUICK if settings.quick else DEVICE_MS
    cases = [
        SpeedupCase((own, acceptance), Pace(local / 1e3, remote / 1e3, rtt / 1e3), tokens, sample)
        for sample in range(settings.seed, settings.seed + samples)
        for acceptance in ACCEPTANCES
        for remote, rtt in LINKS_MS
        for local in device_ms
        for own in (REFUSED, MOSTLY_ACCEPTED)
    ]
    cases += [
        SpeedupCase(None, Pace(local / 1e3, remote / 1e3, rtt / 1e3), tokens, sample)
        for sample in range(settings.seed, settings.seed + settings.repeats)
        for local, remote in COMPARABLE_MS
        for rtt in ROUND_TRIPS_MS
    ]
    return measure_all(measure, cases, progress)


def measure(case: SpeedupCase) -> Row:
    """One row."""
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
    return {
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


def _shuffled(acceptance: float, tokens: int, seed: int) -> tuple[bool, ...]:
    """Exactly that share of acceptances, in random order."""
    accepted = [number < round(acceptance * tokens) for number in range(tokens)]
    random.Random(seed).shuffle(accepted)
    return tuple(accepted)


def _algorithm1(case: SpeedupCase) -> tuple[float, float]:
    """The cloud's acceptance rate and the seconds per token of Algorithm 1 on the device."""
    pace = case.pace
    question = Question(seed=case.sample, sampler=Sampler(temperature=1.0), max_tokens=case.tokens)
    settings = DragonSettings(
        rule="algorithm1",
        aggregator=Aggregator.DEVICE,
        codec="topp:0.95",
        run_ahead=RUN_AHEAD,
        follow=False,
    )
    script = Script(case.sample, sharpness=2.0, disagreement=0.7, stop=0.0)
    sides = (scripted(side, script, forward_s) for side, forward_s in pace.forward_s.items())
    answer = played(question, settings, *sides, link=pace.link)
    return answer.accepted("cloud") or 0.0, answer.between_s or 0.0


def summarise(rows: list[Row]) -> dict[str, Any]:
    """How far the points are from the theorem, by regime, and Algorithm 1 from Eq. 7."""
    replayed, algorithm1 = _by_rule(rows)
    deviations = {
        f"{_regime(regime)}, device's drafts {name}": _deviations(
            [row["speedup"] / row["theorem"] for row in group if row["device_acceptance"] == own]
        )
        for regime, group in replayed.items()
        for own, name in ((REFUSED, "refused"), (MOSTLY_ACCEPTED, "mostly accepted"))
    }
    acceptance = [row["acceptance"] for row in algorithm1]
    return {
        "speedup_over_theorem": deviations,
        "algorithm1_over_eq7": _deviations(
            [row["ms_per_token"] / row["eq7_ms_per_token"] for row in algorithm1]
        ),
        "algorithm1_acceptance": [round(min(acceptance), 3), round(max(acceptance), 3)],
    }


def _by_rule(rows: list[Row]) -> tuple[dict[int, list[Row]], list[Row]]:
    """The replayed rows by regime of the theorem, and those of Algorithm 1."""
    replayed: dict[int, list[Row]] = {1: [], 2: [], 3: []}
    algorithm1 = []
    for row in rows:
        if row["rule"] == "algorithm1":
            algorithm1.append(row)
        elif row["device_ms"] <= row["cloud_ms"]:
            replayed[1].append(row)
        else:
            replayed[2 if row["device_ms"] <= row["cloud_ms"] + row["rtt_ms"] else 3].append(row)
    return {regime: group for regime, group in replayed.items() if group}, algorithm1


def _regime(number: int) -> str:
    return {1: "c_l <= c_r", 2: "c_r < c_l <= c_r + rtt", 3: "c_r + rtt < c_l"}[number]


def _deviations(ratios: list[float]) -> dict[str, float | int]:
    return {
        "points": len(ratios),
        "lowest": round(min(ratios), 4),
        "median": round(float(np.median(ratios)), 4),
        "highest": round(max(ratios), 4),
    }


def plot(rows: list[Row], path: Path) -> None:
    """A panel per acceptance rate: the theorem's curves and the runtime's points on them."""
    panels = grouped(having(rows, rule="replayed"), "acceptance")
    with charts.picture(path, columns=len(panels), height_inches=4.4, legend=2) as (_, axes):
        for axis, ((acceptance,), group) in zip(axes[0], panels.items(), strict=True):
            _panel(axis, acceptance, group)
            axis.set(
                title=f"acceptance of the cloud's drafts {acceptance:g}",
                xlabel="device's decoding delay per draft (ms)",
                ylabel="speed-up over synchronous (times)",
            )


def _panel(axis: Any, acceptance: float, rows: list[Row]) -> None:
    curve_ms = np.linspace(1, max(row["device_ms"] for row in rows) + 5, 300)
    looks = charts.looks(grouped(rows, "cloud_ms", "rtt_ms"))
    for (remote, rtt), look in looks.items():
        curve = [theorem(acceptance, Pace(ms / 1e3, remote / 1e3, rtt / 1e3)) for ms in curve_ms]
        label = f"theorem: cloud {remote:g} ms, round trip {rtt:g} ms"
        axis.plot(curve_ms, curve, color=look.colour, label=label)
    drafts = {REFUSED: "refused", MOSTLY_ACCEPTED: f"{MOSTLY_ACCEPTED:.0%} accepted"}
    for own, name in drafts.items():
        filled = own == REFUSED
        group = [row | {"link": (row["cloud_ms"], row["rtt_ms"])} for row in rows]
        found = estimates(having(group, device_acceptance=own), "speedup", "link", "device_ms")
        for link, look in looks.items():
            hidden = replace(look, line="", filled=filled, label="_")
            charts.lines(axis, found, {link: hidden}, intervals=False)
        look = charts.Look(charts.GREY, "o", "", filled, f"runtime: device's drafts {name}")
        axis.plot([], [], **look.style())
