"""`gamma`: whose corrected draft Algorithm 1 takes, and what that is worth (DRAGON Theorem 4.2).

γ is how often it is the device's; DRAGON's is ½. By the theorem a side's drafts are accepted the
more often the more often its own is taken: α, a line between Σ p_s p_t and 1 - η_other δ (Eq. 5),
which is level only where both sides are certain. Both sides' real distributions at every token of
the sample questions' answers (see `teacher_forced`) go through the runtime's codec and rule. What
was accepted is then replayed by the runtime in virtual time: who aggregates waits for the other
side's rejections (Eq. 7).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt.control.scheduler import Aggregator, Estimate, expected_latency
from dragonrt.distributions import Distribution, codec
from dragonrt.sampling.aggregation import Algorithm1, Candidate, expected_acceptance_algorithm1
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from scripts.papers import charts
from scripts.papers.acceptances import Acceptances
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, averages, exactly, having, mean
from scripts.papers.parallel import measure_all
from scripts.papers.teacher_forced import AnswerPosition, BothSides
from scripts.papers.virtual_arena import Pace, replayed

NAME = "gamma"
SUMMARY = "Acceptance and ms per token by whose draft is taken (DRAGON Theorem 4.2; 5 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

GAMMAS = (0.0, 0.25, 0.5, 0.75, 1.0)
TEMPERATURE = 0.8
CODEC = "topp:0.8"
QUESTIONS, QUESTIONS_QUICK, TOKENS = 16, 4, 32
SEQUENCES = 4
"""Draws of all positions, for every repeat."""
PACE = Pace(0.05, 0.05, 0.3)
RUN_AHEAD = 32
FIXED = (Aggregator.DEVICE, Aggregator.CLOUD)
AGGREGATORS = (*FIXED, Aggregator.GREEDY)
SIDES: tuple[Side, ...] = ("device", "cloud")


@dataclass(frozen=True, slots=True)
class DraftedPosition:
    """Both sides' distributions of one position, as they cross, and η, the device's first."""

    p: dict[Side, Distribution]
    weights: tuple[float, float]

    def expected(self, side: Side, gamma: float) -> float:
        """α of that side (Eq. 5), where `gamma` is how often its own draft is taken."""
        own, other = SIDES.index(side), SIDES[1 - SIDES.index(side)]
        return expected_acceptance_algorithm1(self.p[side], self.p[other], self.weights[own], gamma)

    def accepted(self, rule: Algorithm1, step: int) -> tuple[bool, ...]:
        """Whether the device's and the cloud's draft of that step became the target."""
        device, cloud = (Candidate(rule.draft(side, step, p), p) for side, p in self.p.items())
        target = rule.target(step, device, cloud, self.weights)
        return device.token == target, cloud.token == target


@dataclass(frozen=True, slots=True)
class GammaCase:
    """One answer of the runtime: columns of its own, and what it replays."""

    columns: Row
    acceptances: Acceptances


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per γ, draw of all positions and aggregator."""

    questions = QUESTIONS_QUICK if settings.quick else QUESTIONS
    found = BothSides.load(settings.model).positions(questions, TOKENS, settings.seed)
    positions = list(map(received, found))
    seeds = range(settings.seed, settings.seed + SEQUENCES * settings.repeats)
    cases = [
        GammaCase(columns | {"aggregator": aggregator.value}, acceptances)
        for gamma in GAMMAS
        for columns, acceptances in draws(positions, gamma, seeds)
        for aggregator in AGGREGATORS
    ]
    return measure_all(measure, cases, progress)


def received(position: AnswerPosition) -> DraftedPosition:
    """What the rule is given: each side's distribution after sampler and codec."""
    rule, code = Algorithm1(Noise(0), Sampler(TEMPERATURE)), codec(CODEC, position.device.size)
    said = {"device": position.device, "cloud": position.cloud}
    p = {side: code.quantize(rule.shape(said[side])).distribution for side in SIDES}
    return DraftedPosition(p, position.weights)


def draws(
    positions: Sequence[DraftedPosition], gamma: float, seeds: Sequence[int]
) -> list[tuple[Row, Acceptances]]:
    """Of every seed all positions' outcomes, and the means of what they were expected to be."""
    of = {"device": gamma, "cloud": 1 - gamma}
    same: Row = {"gamma": gamma, "positions": len(positions)}
    for side in SIDES:
        for column, taken in (("expected", of[side]), ("least", 0.0), ("most", 1.0)):
            alphas = [position.expected(side, taken) for position in positions]
            same[f"{column}_{side}"] = float(np.mean(alphas))
        gains = (each.expected(side, 1.0) - each.expected(side, 0.0) for each in positions)
        same[f"smallest_gain_{side}"] = min(gains)
    found = []
    for seed in seeds:
        rule = Algorithm1(Noise(seed), Sampler(TEMPERATURE), gamma)
        drawn = [position.accepted(rule, step) for step, position in enumerate(positions)]
        device, cloud = map(tuple, zip(*drawn, strict=True))
        accepted = {"accepted_device": sum(device), "accepted_cloud": sum(cloud)}
        shares = {name: count / len(positions) for name, count in accepted.items()}
        found.append((same | {"draw": seed} | shares, Acceptances(device, cloud)))
    return found


def measure(case: GammaCase) -> Row:
    """The row of one case: milliseconds between the first token and the last, per token."""
    aggregator = Aggregator(case.columns["aggregator"])
    between_s = replayed(case.acceptances, aggregator, PACE, RUN_AHEAD).between_s
    return case.columns | {"ms_per_token": 1000 * (between_s or 0.0)}


def expected_ms(row: Row, side: Side) -> float:
    """Z of Eq. 7, in milliseconds: what that side is expected to take per token as aggregator."""
    acceptance = {each: row[f"expected_{each}"] for each in SIDES}
    return 1000 * expected_latency(side, Estimate(PACE.forward_s, acceptance, PACE.rtt_s))


def summarise(rows: list[Row]) -> dict[str, Any]:
    """By γ: acceptance of both sides, measured and expected, and ms per token by aggregator."""
    once = having(rows, aggregator=AGGREGATORS[0].value)
    measured = {side: averages(once, f"accepted_{side}", "gamma") for side in SIDES}
    times = averages(rows, "ms_per_token", "gamma", "aggregator")
    found: dict[str, Any] = {
        "positions": rows[0]["positions"],
        "smallest gain from γ = 0 to 1 at any position": {
            side: float(f"{rows[0][f'smallest_gain_{side}']:.4g}") for side in SIDES
        },
    }
    for (gamma,) in measured["device"]:
        row = having(once, gamma=gamma)[0]
        found[f"γ = {gamma:g}"] = {
            side: {
                "accepted": measured[side][gamma,].to_json(),
                "expected": round(row[f"expected_{side}"], 4),
            }
            for side in SIDES
        } | {
            "ms per token": {
                each.value: times[gamma, each.value].to_json()
                | ({"Eq. 7": round(expected_ms(row, each.first()), 2)} if each in FIXED else {})
                for each in AGGREGATORS
            }
        }
    return found


def plot(rows: list[Row], path: Path) -> None:
    """Acceptance over γ between its bounds, and ms per token of each aggregator beside Eq. 7."""
    once = having(rows, aggregator=FIXED[0].value)
    by_gamma = {row["gamma"]: row for row in once}
    with charts.picture(path, columns=2, height_inches=4.8) as (_, axes):
        left, right = axes[0]
        for side in SIDES:
            colour = charts.SIDE_COLOURS[side]
            found = averages(once, f"accepted_{side}", "gamma")
            points = {(side, gamma): each for (gamma,), each in found.items()}
            dots = charts.Look(colour, "o", "", label=f"{side}'s drafts, measured")
            charts.lines(left, points, {side: dots})
            alphas = {(side, g): exactly(row[f"expected_{side}"]) for g, row in by_gamma.items()}
            charts.lines(left, alphas, {side: charts.Look(colour, label=f"{side}'s, Eq. 5")})
            for column, style in (("most", "--"), ("least", ":")):
                height = mean(once, f"{column}_{side}")
                left.axhline(height, color=colour, linestyle=style, linewidth=0.9)
        times = averages(rows, "ms_per_token", "aggregator", "gamma")
        for each, look in charts.looks(AGGREGATORS).items():
            if each not in FIXED:
                charts.lines(right, times, {each.value: replace(look, label="greedy, measured")})
                continue
            dots = replace(look, line="", label=f"{each.value} aggregates, measured")
            charts.lines(right, times, {each.value: dots})
            z = {(each, g): exactly(expected_ms(row, each.first())) for g, row in by_gamma.items()}
            charts.lines(right, z, {each: charts.Look(look.colour, label=f"{each.value}, Eq. 7")})
        rtt_ms, forward_ms = 1000 * PACE.rtt_s, 1000 * PACE.device_s
        bounds = "$1-\\eta\\,\\delta$ dashed, $\\sum p_s p_t$ dotted"
        left.set(title=f"temperature {TEMPERATURE:g}; {bounds}", ylabel="accepted (mean, 95 %)")
        right.set(
            title=f"round trip {rtt_ms:g} ms, {forward_ms:g} ms per draft",
            ylabel="ms per token (mean, 95 %)",
            ylim=(0, None),
        )
        for axis in (left, right):
            axis.set_xlabel("γ, how often the device's is taken")
            axis.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.15))
