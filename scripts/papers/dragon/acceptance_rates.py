"""`acceptance`: how often drafts become target tokens, measured and expected, over temperature.

Both sides' real distributions at every token of the sample questions' answers (`teacher_forced`)
go through the runtime's own codec and rules, with fresh noise for each draw. Algorithm 1 is
expected to follow DRAGON Eq. 5, the coupled rule SPEC 1.2.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt.distributions import codec, mix, total_variation
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import rule
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import SIDES
from scripts.lab.intervals import Row, averages, grouped, having, mean, table
from scripts.papers import charts, teacher_forced
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.teacher_forced import AnswerPosition
from scripts.papers.theory import expected_acceptance_coupled

NAME = "acceptance"
SUMMARY = "Acceptance of both rules, measured and expected (DRAGON Eq. 5; 2 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)

CODEC = "topp:0.8"
RULES = ("algorithm1", "coupled")
TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
DRAWS, DRAWS_QUICK = 20, 10
"""Draws of each repeat, at every position."""
POSITIONS_QUICK = 60


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per rule, temperature, position and side."""
    positions = list(teacher_forced.positions(settings.model, 16, 32, settings.seed))
    if settings.quick:
        positions = positions[:: max(len(positions) // POSITIONS_QUICK, 1)]
    draws = settings.repeats * settings.size(DRAWS, DRAWS_QUICK)
    noises = [Noise(settings.seed + draw) for draw in range(draws)]

    def measure(step: int) -> Iterator[Row]:
        for name, temperature in product(RULES, TEMPERATURES):
            yield from rows_of(positions[step], step, name, Sampler(temperature), noises)

    return measure_all(measure, range(len(positions)), progress)


def rows_of(
    position: AnswerPosition, step: int, name: str, sampler: Sampler, noises: list[Noise]
) -> Iterator[Row]:
    """Yield both sides' rows of one position."""
    certain = sampler.temperature == 0
    noises = noises[:1] if certain else noises
    sent = position.sent(rule(name, noises[0], sampler), codec(CODEC, position.device.size))
    accepted = np.mean([sent.accepted(rule(name, each, sampler), step) for each in noises], axis=0)
    drawn_from = sent.p
    if name == "coupled" or certain:
        drawn_from = {side: sampler(sent.p[side]) for side in SIDES}
    target_p = sampler(mix((sent.p["device"], sent.p["cloud"]), position.weights))
    for number, side in enumerate(SIDES):
        if certain:
            expected = None
        elif name == "algorithm1":
            expected = sent.expected_algorithm1(side)
        else:
            expected = expected_acceptance_coupled(drawn_from[side], target_p)
        yield {
            "rule": name,
            "temperature": sampler.temperature,
            "question": position.question,
            "step": position.step,
            "side": side,
            "draws": len(noises),
            "accepted": float(accepted[number]),
            "expected": expected,
            "total_variation": total_variation(drawn_from["device"], drawn_from["cloud"]),
            "weight": position.weights[number],
        }


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return means over positions: measured, expected, and how far they are apart."""
    apart = [
        row | {"difference": None if row["expected"] is None else row["accepted"] - row["expected"]}
        for row in rows
    ]
    columns = ("accepted", "expected", "difference", "total_variation")
    sides = table(rows, "rule", "temperature", "side", mean=columns[:1])
    return {
        "positions": len(grouped(rows, "question", "step")),
        "means": table(apart, "rule", "temperature", mean=columns),
        "by side": sides,
    }


def plot(rows: list[Row], path: Path) -> None:
    """Draw means over temperature, and at 0.8 every position over the two sides' TV."""
    shown = {"accepted": "measured (95 % over positions)", "expected": "expected"}
    with charts.picture(path, columns=2, height_inches=3.9, sharey=True) as (_, axes):
        left, right = axes[0]
        for column, label in shown.items():
            measured = column == "accepted"
            looks = {
                name: replace(
                    look,
                    marker=look.marker * measured,
                    line="-" * (not measured),
                    label=f"{name}, {label}",
                )
                for name, look in charts.looks(RULES).items()
            }
            found = averages(rows, column, "rule", "temperature")
            charts.lines(left, found, looks, apart=0.03 * measured, intervals=measured)
        for name, look in charts.looks(RULES).items():
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
                    label=f"{name}, {shown[column].partition(' (')[0]}",
                )
        left.set(xlabel="temperature", ylabel="acceptance, mean of both sides", ylim=(0, 1.03))
        right.set(xlabel="TV of the two sides at temperature 0.8")
        left.legend(loc="lower left")
        right.legend(loc="lower left")
