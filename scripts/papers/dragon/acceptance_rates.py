"""`acceptance`: how often drafts become target tokens, measured and expected, over temperature.

Both sides' real distributions at every token of the sample questions' answers (see
`teacher_forced`) go through the runtime's own codec and rules, with fresh noise for each draw.
Algorithm 1 is expected to follow DRAGON Eq. 5, the coupled rule SPEC 1.2.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragonrt.distributions import codec, mix, total_variation
from dragonrt.sampling.aggregation import Candidate, expected_acceptance_algorithm1, rule
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, averages, grouped, having, mean
from scripts.papers.teacher_forced import AnswerPosition, BothSides
from scripts.papers.theory import expected_acceptance_coupled

NAME = "acceptance"
SUMMARY = (
    "Acceptance of both rules over temperature, measured and expected (DRAGON Eq. 5; 2 minutes)"
)
CLOCKS: tuple[Clock, ...] = ("real",)

CODEC = "topp:0.8"
RULES = ("algorithm1", "coupled")
TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
DRAWS, DRAWS_QUICK = 20, 10
"""Draws of each repeat, at every position."""
POSITIONS_QUICK = 60
SIDES: tuple[Side, ...] = ("device", "cloud")


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per rule, temperature, position and side."""

    positions = list(BothSides.load(settings.model).positions(16, 32, settings.seed))
    if settings.quick:
        positions = positions[:: max(len(positions) // POSITIONS_QUICK, 1)]
    draws = settings.repeats * (DRAWS_QUICK if settings.quick else DRAWS)
    rows: list[Row] = []
    for done, position in enumerate(positions):
        for name in RULES:
            for temperature in TEMPERATURES:
                noises = [Noise(settings.seed + draw) for draw in range(draws)]
                rows += _measure(position, done, name, Sampler(temperature), noises)
        progress(done + 1, len(positions))
    return rows


def _measure(
    position: AnswerPosition, step: int, name: str, sampler: Sampler, noises: list[Noise]
) -> Iterator[Row]:
    """Both sides' rows of one position. `step` is where its noise is taken from: no two positions
    share any. At temperature 0 every draw is the same."""
    dense: dict[Side, Any] = {"device": position.device, "cloud": position.cloud}
    code = codec(CODEC, position.device.size)
    certain = sampler.temperature == 0
    noises = noises[:1] if certain else noises
    accepted = dict.fromkeys(SIDES, 0)
    shaped = rule(name, noises[0], sampler).shape
    p = {side: code.quantize(shaped(dense[side])).distribution for side in SIDES}
    for noise in noises:
        decided = rule(name, noise, sampler)
        device, cloud = (Candidate(decided.draft(side, step, p[side]), p[side]) for side in SIDES)
        target = decided.target(step, device, cloud, position.weights)
        accepted["device"] += device.token == target
        accepted["cloud"] += cloud.token == target
    drawn_from = p
    if name == "coupled" or certain:
        drawn_from = {side: sampler(p[side]) for side in SIDES}
    target_p = mix((p["device"], p["cloud"]), position.weights)
    for side, other, weight in zip(SIDES, SIDES[::-1], position.weights, strict=True):
        if certain:
            expected = None
        elif name == "algorithm1":
            expected = expected_acceptance_algorithm1(p[side], p[other], weight)
        else:
            expected = expected_acceptance_coupled(drawn_from[side], sampler(target_p))
        yield {
            "rule": name,
            "temperature": sampler.temperature,
            "question": position.question,
            "step": position.step,
            "side": side,
            "draws": len(noises),
            "accepted": accepted[side] / len(noises),
            "expected": expected,
            "total_variation": total_variation(drawn_from["device"], drawn_from["cloud"]),
            "weight": weight,
        }


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Means over positions: measured with its interval, expected, and how far they are apart."""
    measured = averages(rows, "accepted", "rule", "temperature")
    expected = averages(rows, "expected", "rule", "temperature")
    by_side = averages(rows, "accepted", "rule", "temperature", "side")
    summary: dict[str, Any] = {
        "positions": len({(row["question"], row["step"]) for row in rows}),
        "mean_total_variation": {
            str(heat): round(each.value, 4)
            for (heat,), each in averages(
                [row for row in rows if row["rule"] == "coupled"], "total_variation", "temperature"
            ).items()
        },
    }
    for name in RULES:
        summary[name] = {
            str(heat): {
                "measured": measured[name, heat].to_json(),
                **{side: round(by_side[name, heat, side].value, 4) for side in SIDES},
                "expected": round(expected[name, heat].value, 4)
                if (name, heat) in expected
                else None,
                "difference": _difference(rows, name, heat),
            }
            for heat in TEMPERATURES
        }
    return summary


def _difference(rows: list[Row], name: str, heat: float) -> dict[str, float | int] | None:
    """Measured less expected over all positions, with its interval: 0 should lie within."""
    apart = [
        {"apart": row["accepted"] - row["expected"]}
        for row in rows
        if (row["rule"], row["temperature"]) == (name, heat) and row["expected"] is not None
    ]
    found = averages(apart, "apart")
    return found[()].to_json() if found else None


def plot(rows: list[Row], path: Path) -> None:
    """Means over temperature, and at temperature 0.8 every position over the two sides' TV."""
    measured = averages(rows, "accepted", "rule", "temperature")
    expected = averages(rows, "expected", "rule", "temperature")
    looks = charts.looks(RULES)
    with charts.picture(path, columns=2, height_inches=3.9, sharey=True) as (_, axes):
        left, right = axes[0]
        marked = {
            name: replace(look, line="", label=f"{name}, measured (95 % over positions)")
            for name, look in looks.items()
        }
        charts.lines(left, measured, marked, apart=0.03)
        drawn = {
            name: replace(look, marker="", label=f"{name}, expected")
            for name, look in looks.items()
        }
        charts.lines(left, expected, drawn, intervals=False)
        for name, look in looks.items():
            both = grouped(having(rows, rule=name, temperature=0.8), "question", "step").values()
            for column, size, alpha in (("accepted", 16, 0.45), ("expected", 8, 1.0)):
                right.scatter(
                    [group[0]["total_variation"] for group in both],
                    [mean(group, column) for group in both],
                    s=size,
                    marker=look.marker,
                    color=look.colour,
                    alpha=alpha,
                    linewidths=0,
                    label=f"{name}, {'measured' if column == 'accepted' else column}",
                )
        left.set(xlabel="temperature", ylabel="acceptance, mean of both sides", ylim=(0, 1.03))
        right.set(xlabel="TV of the two sides at temperature 0.8")
        left.legend(loc="lower left")
        right.legend(loc="lower left")
