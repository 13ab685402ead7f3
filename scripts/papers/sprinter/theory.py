"""`sprinter-theory`: what approximate verification promises, and what it does (SPRINTER Fig. 5, 6).

Verifiers of known rates on known distributions: the distance of the output's law from the target's
(Theorem 1), the share of drafted tokens that stand (7), and, if `ACCEPTABLE` tokens in a row are
acceptable and no more, how many pass until one is rejected (2), and how long that takes (3).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.control.trained import TokenVerifier
from dragonrt.distributions import Distribution, total_variation
from dragonrt.modes import sprinter
from dragonrt.modes.messages import Block
from dragonrt.modes.prefix import LOW_BITS
from dragonrt.modes.question import Question
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.scripted import SimulatedPrediction
from dragonrt.wire.fields import MAX_BLOCK
from scripts.lab.intervals import Row, averages, having
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all
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
LAW_TP, LAW_FP = (0.5, 0.9), (0.0, 0.1, 0.25, 0.5, 0.75, 0.95)
RUN_TP, RUN_FP = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0), (0.1, 0.5)
ACCEPTABLE, DRAFT_S = 5, 0.1
"""r and t_d of the paper's figures."""

BATCHES, BATCHES_QUICK = 10, 6
TOKENS, RUNS = 250, 50
"""Tokens, or runs, of one batch, whose mean is one sample."""
SETTINGS = sprinter.SprinterSettings(codec="dense:fp32", run_length=MAX_BLOCK)


def _pair() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    random = np.random.Generator(np.random.Philox(0))
    p, q = random.dirichlet(np.full(VOCABULARY, 0.7), 2).astype(np.float32)
    return p, q


P, Q = _pair()
"""Of every text, float32 [V]."""
TV = total_variation(*(Distribution.from_dense(p / p.sum(dtype=np.float64)) for p in (P, Q)))


class KnownRates(TokenVerifier):
    """A verifier that is told p, in the place of the hidden state, and errs at given rates."""

    threshold = 0.5

    def __init__(self, eta_tp: float, eta_fp: float, seed: int) -> None:
        self._eta_tp = eta_tp
        self._eta_fp = eta_fp
        self._random = np.random.Generator(np.random.Philox(seed))

    @override
    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        rate = self._eta_tp if q[token] <= hidden[token] else self._eta_fp
        return float(self._random.random() < rate)


class SprintedToken(NamedTuple):
    """The next token of a text; whether the target was called for it, and the draft stands."""

    token: int
    called: bool
    stands: bool


class Lockstep:
    """Both sides of an answer, the device's drafting and the cloud's judging, token by token."""

    def __init__(
        self,
        question: Question,
        settings: sprinter.SprinterSettings,
        vocabulary: int,
        verifier: TokenVerifier,
    ) -> None:
        resources = sprinter.SprinterResources(vocabulary=vocabulary, verifier=verifier)
        self.drafting = sprinter.SprinterDrafting(question, settings, resources)
        self._judging = sprinter.SprinterJudging(question, settings, resources)

    def next(self, p: NDArray[np.float32], q: NDArray[np.float32]) -> SprintedToken:
        """One token, where the target says `p` [V] and the draft model `q` [V]."""
        drafted = self.drafting.postprocess(math.inf)([SimulatedPrediction(q, 0.0, p)])
        advance = self.drafting.take_draft(drafted)
        block = advance.block
        if block is not None:
            sent = Block(
                session=1,
                round=1,
                step=block.step,
                prefix_hash=block.prefix_hash & LOW_BITS,
                count=block.count,
                resolutions=block.resolutions,
                decided=block.decided,
                payload=block.payload,
            )
            read = self._judging.read(sent)
            verdict = self._judging.answer(read, [SimulatedPrediction(p, 0.0, p)])
            advance = self.drafting.take_verdict(verdict.accepted, verdict.token)
        decided = advance.decided[0]
        return SprintedToken(decided.token, block is not None, decided.accepted is not False)


THEOREMS: dict[int, tuple[Callable[[float, float], float], str, str]] = {
    1: (lambda tp, fp: mixture_tv(fp, TV), "eta_fp", "TV of output and target"),
    7: (lambda tp, fp: expected_acceptance_sprinter(fp, TV), "eta_fp", "drafted tokens that stand"),
    2: (lambda tp, fp: expected_run_length(tp, fp, ACCEPTABLE), "eta_tp", "tokens that pass"),
    3: (lambda tp, fp: stopping_time(DRAFT_S, tp, fp, ACCEPTABLE), "eta_tp", "seconds that pass"),
}
"""A formula of η_TP and η_FP, which of them its panel is drawn over, and the panel's label."""
NAMES = {"eta_fp": "false positives η_FP", "eta_tp": "true positives η_TP"}


Case = tuple[bool, float, float, int]
"""One batch: of runs, or of a text; η_TP and η_FP, and the seed."""


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return two rows per batch: Theorems 1 and 7 of a text, or Theorems 2 and 3 of its runs."""
    points = [*product([False], LAW_TP, LAW_FP), *product([True], RUN_TP, RUN_FP)]
    cases = [
        (*point, settings.seed + batch * len(points) + number)
        for batch in range(settings.size(BATCHES, BATCHES_QUICK) * settings.repeats)
        for number, point in enumerate(points)
    ]
    return measure_all(measure, cases, progress, processes=True)


def measure(case: Case) -> list[Row]:
    """Return the rows of one batch."""
    of_runs, eta_tp, eta_fp, seed = case
    found = (_runs if of_runs else _text)(KnownRates(eta_tp, eta_fp, seed), seed)
    return [
        {
            "theorem": theorem,
            "eta_tp": eta_tp,
            "eta_fp": eta_fp,
            "seed": seed,
            "measured": measured,
            "expected": THEOREMS[theorem][0](eta_tp, eta_fp),
        }
        for theorem, measured in found.items()
    ]


def _question(seed: int, tokens: int) -> Question:
    return Question(seed=seed, sampler=Sampler(1.0), max_tokens=tokens)


def _text(verifier: KnownRates, seed: int) -> dict[int, float]:
    """Return how far the output is from p, and how often drafts stand.

    By Theorem 1 the output's excess over p on the tokens with q > p is η_FP · TV(p, q) itself, so
    it is measured without the bias that the TV of a sample has.
    """
    text = Lockstep(_question(seed, TOKENS), SETTINGS, VOCABULARY, verifier)
    tokens = [text.next(P, Q) for _ in range(TOKENS)]
    frequencies = np.bincount([each.token for each in tokens], minlength=VOCABULARY) / TOKENS
    return {
        1: float((frequencies - P)[Q > P].sum()),
        7: sum(each.stands for each in tokens) / TOKENS,
    }


def _runs(verifier: KnownRates, seed: int) -> dict[int, float]:
    """Return how many tokens pass before one is rejected, and how long that takes."""
    certain = np.eye(VOCABULARY, dtype=np.float32)[0]
    doubted = np.full(VOCABULARY, 0.5 / (VOCABULARY - 1), np.float32)
    doubted[0] = 0.5
    resources, passed = sprinter.SprinterResources(vocabulary=VOCABULARY, verifier=verifier), 0
    for number in range(RUNS):
        question = _question(RUNS * seed + number, MAX_BLOCK)
        drafting = sprinter.SprinterDrafting(question, SETTINGS, resources)
        while drafting.ready:
            q, p = (Q, Q) if drafting.decided < ACCEPTABLE else (certain, doubted)
            drafting.take_draft(drafting.postprocess(math.inf)([SimulatedPrediction(q, 0.0, p)]))
        passed += drafting.decided
    return {2: passed / RUNS, 3: DRAFT_S * (1 + passed / RUNS)}


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return the points of each theorem whose interval holds the formula, and the largest error."""
    apart = [{**row, "apart": row["measured"] - row["expected"]} for row in rows]
    summary = {}
    for theorem in THEOREMS:
        points = averages(having(apart, theorem=theorem), "apart", "eta_tp", "eta_fp").values()
        summary[f"theorem {theorem}"] = {
            "points": len(points),
            "within": sum(each.low <= 0 <= each.high for each in points),
            "largest_difference": round(max(abs(each.value) for each in points), 4),
        }
    return summary


def plot(rows: list[Row], path: Path) -> None:
    """Draw a panel per theorem: the formula's curves and the simulated points."""
    with charts.picture(path, rows=2, columns=2, height_inches=6.4) as (_, axes):
        for axis, (number, (expected, over, label)) in zip(
            axes.flat, THEOREMS.items(), strict=True
        ):
            law = over == "eta_fp"
            fixed, values = ("eta_tp", LAW_TP) if law else ("eta_fp", RUN_FP)
            looks = {
                value: replace(look, line="", label=f"{NAMES[fixed][-4:]} = {value:g}")
                for value, look in charts.looks(values).items()
            }
            found = averages(having(rows, theorem=number), "measured", fixed, over)
            charts.lines(axis, found, looks)
            xs = np.linspace(0, 1, 101).tolist()
            for value, look in looks.items():
                curve = [expected(*((value, x) if law else (x, value))) for x in xs]
                axis.plot(xs, curve, color=charts.BLACK if law else look.colour)
            title = f"Theorem {number}"
            axis.set(xlabel=NAMES[over], ylabel=label, title=title)
            axis.legend()
