"""`sprinter-theory`: what approximate verification promises, and what it does (SPRINTER Fig. 5, 6).

The mode's own drafting and verifying, with verifiers of known rates on known distributions: the
distance of the output's law from the target's (Theorem 1), the share of drafted tokens that stand
(Theorem 7), and, where `ACCEPTABLE` tokens in a row are acceptable and no more, how many pass until
the verifier refuses one (Theorem 2), and how long that takes (Theorem 3).
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution, total_variation
from dragonrt.modes.question import Question
from dragonrt.modes.registry import Resources
from dragonrt.modes.settings import SprinterSettings
from dragonrt.modes.sprinter import SprinterDrafting
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.scripted import SimulatedSaid
from dragonrt.wire.limits import MAX_BLOCK
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, averages, having
from scripts.papers.parallel import measure_all
from scripts.papers.sprinter.sprinting import KnownRates, Lockstep
from scripts.papers.theory import (
    expected_acceptance_sprinter,
    expected_run_length,
    mixture_tv,
    stopping_time,
)

NAME = "sprinter-theory"
SUMMARY = "Verifiers of known rates against SPRINTER's Theorems 1, 2, 3 and 7 (Fig. 5, 6; a minute)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

VOCABULARY = 16
LAW_TP = (0.5, 0.9)
LAW_FP = (0.0, 0.1, 0.25, 0.5, 0.75, 0.95)
ACCEPTABLE = 5
RUN_TP = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
RUN_FP = (0.1, 0.5)
DRAFT_S = 0.1
"""r, η_FP and t_d of the paper's figures."""

BATCHES, BATCHES_QUICK = 10, 6
TOKENS = 250
RUNS = 50
"""Tokens, or runs, of one batch, whose mean is one sample."""

TITLES = {
    1: ("false positives η_FP", "TV of output and target"),
    7: ("false positives η_FP", "drafted tokens that stand"),
    2: ("true positives η_TP", "tokens that pass"),
    3: ("true positives η_TP", "seconds until a token is refused"),
}
"""What each theorem's panel shows, in their order."""


@dataclass(frozen=True, slots=True)
class SprinterCase:
    """One batch at one pair of rates: of a text (`runs` False) or of runs."""

    runs: bool
    eta_tp: float
    eta_fp: float
    seed: int


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Two rows per batch: Theorems 1 and 7 of one text, or Theorems 2 and 3 of the same runs."""
    batches = (BATCHES_QUICK if settings.quick else BATCHES) * settings.repeats
    points = [(False, tp, fp) for tp in LAW_TP for fp in LAW_FP]
    points += [(True, tp, fp) for tp in RUN_TP for fp in RUN_FP]
    cases = [
        SprinterCase(*point, settings.seed + batch * len(points) + number)
        for batch in range(batches)
        for number, point in enumerate(points)
    ]
    return [row for rows in measure_all(measure, cases, progress) for row in rows]


def measure(case: SprinterCase) -> list[Row]:
    """The rows of one batch."""
    rates = (case.eta_tp, case.eta_fp)
    if case.runs:
        length = _mean_run(case)
        found = {
            2: (length, expected_run_length(*rates, ACCEPTABLE)),
            3: (DRAFT_S * (1 + length), stopping_time(DRAFT_S, *rates, ACCEPTABLE)),
        }
    else:
        distance, acceptance, tv = _text(case)
        found = {
            1: (distance, mixture_tv(case.eta_fp, tv)),
            7: (acceptance, expected_acceptance_sprinter(case.eta_fp, tv)),
        }
    return [
        {
            "theorem": theorem,
            "eta_tp": case.eta_tp,
            "eta_fp": case.eta_fp,
            "seed": case.seed,
            "measured": measured,
            "expected": expected,
        }
        for theorem, (measured, expected) in found.items()
    ]


def pair() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """p and q of every text, float32 [V]."""
    random = np.random.Generator(np.random.Philox(0))
    p, q = random.dirichlet(np.full(VOCABULARY, 0.7), 2).astype(np.float32)
    return p, q


SETTINGS = SprinterSettings(codec="dense:fp32", run_length=MAX_BLOCK)


def _question(seed: int, tokens: int) -> Question:
    return Question(seed=seed, sampler=Sampler(1.0), max_tokens=tokens)


def _text(case: SprinterCase) -> tuple[float, float, float]:
    """How far the output is from p, how often drafts stand, and TV(p, q).

    By Theorem 1 the output's excess over p on the tokens with q > p is η_FP · TV(p, q) itself, so
    it is measured without the bias that the TV of a sample has.
    """
    p, q = pair()
    verifier = KnownRates(case.eta_tp, case.eta_fp, case.seed)
    text = Lockstep(_question(case.seed, TOKENS), SETTINGS, VOCABULARY, verifier)
    said = [text.next(p, q) for _ in range(TOKENS)]
    frequencies = np.bincount([each.token for each in said], minlength=VOCABULARY) / TOKENS
    distance = float((frequencies - p)[q > p].sum())
    acceptance = sum(each.stands for each in said) / TOKENS
    tv = total_variation(Distribution.from_dense(_summed(p)), Distribution.from_dense(_summed(q)))
    return distance, acceptance, tv


def _summed(p: NDArray[np.float32]) -> NDArray[np.float64]:
    wide: NDArray[np.float64] = p.astype(np.float64)
    wide /= wide.sum()
    return wide


def _mean_run(case: SprinterCase) -> float:
    """The mean number of tokens that pass before one is refused."""
    _, alike = pair()
    certain = np.eye(VOCABULARY, dtype=np.float32)[0]
    doubted = np.full(VOCABULARY, 0.5 / (VOCABULARY - 1), np.float32)
    doubted[0] = 0.5
    verifier = KnownRates(case.eta_tp, case.eta_fp, case.seed)
    resources = Resources(vocabulary=VOCABULARY, verifier=verifier)
    passed = 0
    for number in range(RUNS):
        question = _question(RUNS * case.seed + number, MAX_BLOCK)
        drafting = SprinterDrafting(question, SETTINGS, resources)
        while drafting.ready:
            acceptable = drafting.decided < ACCEPTABLE
            q, p = (alike, alike) if acceptable else (certain, doubted)
            drafted = drafting.head(float("inf"))([SimulatedSaid(q, 0.0, p)])
            drafting.take_draft(drafted)
        passed += drafting.decided
    return passed / RUNS


def summarise(rows: list[Row]) -> dict[str, Any]:
    """For each theorem: the points whose interval holds the formula, and the largest distance."""
    apart = [{**row, "apart": row["measured"] - row["expected"]} for row in rows]
    found = averages(apart, "apart", "theorem", "eta_tp", "eta_fp")
    summary = {}
    for theorem in TITLES:
        points = [each for key, each in found.items() if key[0] == theorem]
        summary[f"theorem {theorem}"] = {
            "points": len(points),
            "within": sum(each.low <= 0 <= each.high for each in points),
            "largest_difference": round(max(abs(each.value) for each in points), 4),
        }
    return summary


def plot(rows: list[Row], path: Path) -> None:
    """A panel per theorem: the formula's curves and the simulated points."""
    p, q = (Distribution.from_dense(_summed(each)) for each in pair())
    tv = total_variation(p, q)
    with charts.picture(path, rows=2, columns=2, height_inches=6.4) as (_, axes):
        for axis, (theorem, (x_label, y_label)) in zip(axes.flat, TITLES.items(), strict=True):
            over, fixed, values = (
                ("eta_fp", "eta_tp", LAW_TP) if theorem in (1, 7) else ("eta_tp", "eta_fp", RUN_FP)
            )
            named = {"eta_fp": "η_FP", "eta_tp": "η_TP"}[fixed]
            some = having(rows, theorem=theorem)
            looks = {
                value: replace(look, line="", label=f"{named} = {value:g}")
                for value, look in charts.looks(values).items()
            }
            found = averages(some, "measured", fixed, over)
            charts.lines(axis, found, looks)
            xs = np.linspace(0, 1, 101)
            for value, look in looks.items():
                curve = [_formula(theorem, float(x), value, tv) for x in xs]
                colour = charts.BLACK if theorem in (1, 7) else look.colour
                axis.plot(xs, curve, color=colour)
            axis.set(xlabel=x_label, ylabel=y_label, title=f"Theorem {theorem}")
            axis.legend()


def _formula(theorem: int, x: float, fixed: float, tv: float) -> float:
    """The theorem's curve: over η_FP (1, 7), or over η_TP at a fixed η_FP (2, 3)."""
    if theorem == 1:
        return mixture_tv(x, tv)
    if theorem == 7:
        return expected_acceptance_sprinter(x, tv)
    if theorem == 2:
        return expected_run_length(x, fixed, ACCEPTABLE)
    return stopping_time(DRAFT_S, x, fixed, ACCEPTABLE)
