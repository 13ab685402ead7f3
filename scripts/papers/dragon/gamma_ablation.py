"""`gamma`: whose corrected draft Algorithm 1 takes, and what that is worth (DRAGON Theorem 4.2).

γ is how often it is the device's; DRAGON's is ½. By the theorem a side's drafts are accepted the
more often the more often its own is taken: α, a line between Σ p_s p_t and 1 - η_other δ (Eq. 5).
Both sides' real distributions (`teacher_forced`) go through the runtime's codec and rule. What was
accepted is then replayed by the runtime: the aggregator waits for rejections (Eq. 7).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt.control.scheduler import Aggregator, Estimate, expected_latency
from dragonrt.distributions import codec
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import Algorithm1
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import SIDES, Side
from scripts.lab.arena import Acceptances, Pace, replayed_ms
from scripts.lab.intervals import Row, averages, having, mean, table
from scripts.papers import charts, teacher_forced
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.teacher_forced import AnswerPosition, SentPosition

NAME = "gamma"
SUMMARY = "Acceptance and ms per token by whose draft is taken (DRAGON Theorem 4.2; 5 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

GAMMAS = (0.0, 0.25, 0.5, 0.75, 1.0)
SAMPLER, CODEC = Sampler(0.8), "topp:0.8"
QUESTIONS, QUESTIONS_QUICK, TOKENS = 16, 4, 32
SEQUENCES = 4
"""Draws of all positions, for every repeat."""
PACE = Pace(0.05, 0.05, 0.3)
RUN_AHEAD = 32
FIXED = (Aggregator.DEVICE, Aggregator.CLOUD)
AGGREGATORS = (*FIXED, Aggregator.GREEDY)


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per γ, draw of all positions and aggregator."""
    questions = settings.size(QUESTIONS, QUESTIONS_QUICK)
    found = teacher_forced.positions(settings.model, questions, TOKENS, settings.seed)
    positions = list(map(received, found))
    seeds = range(settings.seed, settings.seed + SEQUENCES * settings.repeats)
    cases = [
        (columns | {"aggregator": aggregator.value}, acceptances)
        for gamma in GAMMAS
        for columns, acceptances in draws(positions, gamma, seeds)
        for aggregator in AGGREGATORS
    ]
    return measure_all(_replay, cases, progress, processes=True)


def received(position: AnswerPosition) -> SentPosition:
    """Return what the rule is given."""
    return position.sent(Algorithm1(Noise(0), SAMPLER), codec(CODEC, position.device.size))


def draws(
    positions: Sequence[SentPosition], gamma: float, seeds: Sequence[int]
) -> list[tuple[Row, Acceptances]]:
    """Return of every seed all positions' outcomes, and the means of their expectations."""
    same: Row = {"gamma": gamma, "positions": len(positions)}
    for side, taken in zip(SIDES, (gamma, 1 - gamma), strict=True):
        expected, least, most = (
            [each.expected_algorithm1(side, often) for each in positions]
            for often in (taken, 0.0, 1.0)
        )
        same |= {f"expected_{side}": float(np.mean(expected))}
        same |= {f"least_{side}": float(np.mean(least)), f"most_{side}": float(np.mean(most))}
        same[f"smallest_gain_{side}"] = min(np.subtract(most, least).tolist())
    found = []
    for seed in seeds:
        rule = Algorithm1(Noise(seed), SAMPLER, gamma)
        drawn = [position.accepted(rule, step) for step, position in enumerate(positions)]
        device, cloud = zip(*drawn, strict=True)
        shares = {
            "accepted_device": float(np.mean(device)),
            "accepted_cloud": float(np.mean(cloud)),
        }
        found.append((same | {"draw": seed} | shares, Acceptances(device, cloud)))
    return found


def _replay(case: tuple[Row, Acceptances]) -> list[Row]:
    """Return the row with its milliseconds per token between the first token and the last."""
    row, acceptances = case
    aggregator = Aggregator(row["aggregator"])
    return [row | {"ms_per_token": replayed_ms(acceptances, aggregator, PACE, RUN_AHEAD)}]


def expected_ms(row: Row, side: Side) -> float:
    """Return Z of Eq. 7: the expected milliseconds per token with that side as aggregator."""
    acceptance = {each: row[f"expected_{each}"] for each in SIDES}
    return 1000 * expected_latency(side, Estimate(PACE.forward_s, acceptance, PACE.rtt_s))


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return by γ: acceptance of both sides, measured and expected, and ms per token."""
    gains = {f"smallest gain, {side}": rows[0][f"smallest_gain_{side}"] for side in SIDES}
    columns = [f"{kind}_{side}" for kind in ("accepted", "expected") for side in SIDES]
    once = having(rows, aggregator=FIXED[0].value)
    eq7 = [
        row | {"aggregator": each.value, "eq7_ms": expected_ms(row, each.first())}
        for row in once
        for each in FIXED
    ]
    return gains | {
        "positions": rows[0]["positions"],
        "acceptance": table(once, "gamma", mean=columns),
        "measured": table(rows, "gamma", "aggregator", mean=["ms_per_token"]),
        "expected": table(eq7, "gamma", "aggregator", mean=["eq7_ms"]),
    }


def plot(rows: list[Row], path: Path) -> None:
    """Draw acceptance over γ between its bounds, and ms per token beside Eq. 7."""
    once = having(rows, aggregator=FIXED[0].value)
    by_gamma = {row["gamma"]: row for row in once}
    with charts.picture(path, columns=2, height_inches=4.8) as (_, axes):
        left, right = axes[0]
        for side, colour in charts.SIDE_COLOURS.items():
            drawn = {"accepted": (charts.Look(colour, "o", ""), "drafts, measured")}
            drawn["expected"] = (charts.Look(colour), "Eq. 5")
            for column, (look, label) in drawn.items():
                named = [row | {"name": f"{side}'s {label}"} for row in once]
                found = averages(named, f"{column}_{side}", "name", "gamma")
                charts.lines(left, found, {f"{side}'s {label}": look}, intervals=not look.line)
            for column, style in (("most", "--"), ("least", ":")):
                height = mean(once, f"{column}_{side}")
                left.axhline(height, color=colour, linestyle=style, linewidth=0.9)
        times = averages(rows, "ms_per_token", "aggregator", "gamma")
        for each, look in charts.looks(AGGREGATORS).items():
            fixed = each in FIXED
            measured = replace(look, line="" if fixed else "-", label=f"{each.value}, measured")
            charts.lines(right, times, {each.value: measured})
            if fixed:
                z = [expected_ms(row, each.first()) for row in by_gamma.values()]
                right.plot(list(by_gamma), z, color=look.colour, label=f"{each.value}, Eq. 7")
        rtt_ms, forward_ms = 1000 * PACE.rtt_s, 1000 * PACE.device_s
        bounds = "$1-\\eta\\,\\delta$ dashed, $\\sum p_s p_t$ dotted"
        heat = f"temperature {SAMPLER.temperature:g}"
        left.set(title=f"{heat}; {bounds}", ylabel="accepted (mean, 95 %)")
        title = f"round trip {rtt_ms:g} ms, {forward_ms:g} ms per draft"
        right.set(title=title, ylabel="ms per token (mean, 95 %)", ylim=(0, None))
        for axis in (left, right):
            axis.set_xlabel("γ, how often the device's is taken")
            axis.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.15))
