"""`sqs-bound`: rejections against Theorem 1 of SQS, dropped mass against Theorem 2 (SPEC 2).

Texts of a pair of models under K-SQS and C-SQS, each kind of text for itself. At every drafted
token that was judged the terms of Theorem 1 are known exactly, and so is its chance of being
rejected: TV(q̂, p), q̂ the quantized distribution. One threshold is steered along all texts of a kind
and setting, as Theorem 2 has it.
"""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import ConformalThreshold, Distribution, codec, total_variation
from dragonrt.distributions.lattice import theorem2_bound
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import speculative_rule
from dragonrt.sampling.samplers import Sampler
from scripts.lab.intervals import Row, distinct, grouped, having, mean, significant, table
from scripts.lab.prompt import TextKind
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.speculation import Speculation, VerifiedBlock, model_pair
from scripts.papers.texts import prompts

NAME = "sqs-bound"
SUMMARY = "Rejections and dropped mass against the bounds of SQS's Theorems 1 and 2 (15 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)

ALPHA = 0.0005
TEMPERATURES, TEMPERATURES_QUICK = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), (0.2, 0.6, 1.0)
TOKENS, TOKENS_QUICK = 64, 32
TEXTS = 2
"""Texts of each kind in each repeat; a quick run has one."""
LENGTH, BUDGET = 8, 5000
ROUNDING = 1e-9
HIGHEST = 1.05
"""Of the pictures: more than one rejection per drafted token says nothing."""


CODINGS: dict[str, tuple[str, int, float | None, float]] = {
    "K-SQS, K = 16, ℓ = 100": ("ksqs:16:100", 100, None, 0.0),
    "K-SQS, K = 64, ℓ = 100": ("ksqs:64:100", 100, None, 0.0),
    "K-SQS, K = 64, ℓ = 1000": ("ksqs:64:1000", 1000, None, 0.0),
    "C-SQS, β₁ = 0.01, η = 0.001": ("csqs:0.01:100", 100, 0.01, 0.001),
    "C-SQS, β₁ = 0.01, η = 0.1": ("csqs:0.01:100", 100, 0.01, 0.1),
}
"""A codec, its resolution ℓ and, for C-SQS, the first threshold β₁ and its learning rate η."""
TERMS = {
    "discrepancy": ("TV(q, p)", charts.SKY),
    "dropped": ("dropped mass α", charts.ORANGE),
    "lattice": ("lattice K/(4ℓ)", charts.GREY),
}
"""Of Theorem 1: Σ TV(q, p), Σ α_n(X_n) and Σ K_n / (4 ℓ_n), with name and colour."""


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per setting, temperature and text: sums over its judged tokens."""
    each, tokens = settings.repeats * settings.size(TEXTS, 1), settings.size(TOKENS, TOKENS_QUICK)
    asked = prompts(model_pair(*settings.pair).draft, each, settings.corpora)
    kinds = list(dict.fromkeys(prompt.kind for prompt in asked))

    def measure(case: tuple[TextKind, str, float]) -> list[Row]:
        kind, name, heat = case
        of_kind = [prompt for prompt in asked if prompt.kind == kind]
        (coder, resolution, beta, eta) = CODINGS[name]
        pair = model_pair(*settings.pair, of_kind[0])
        speculation = Speculation(
            pair=pair,
            codec=codec(coder, pair.draft.vocabulary),
            length=LENGTH,
            budget=BUDGET,
            threshold=ConformalThreshold(beta, eta, ALPHA) if beta else None,
        )
        rows = list[Row]()
        for number, prompt in enumerate(of_kind):
            noise = Noise(settings.seed * each + number)
            rule = speculative_rule("rejection", noise, Sampler(heat))
            blocks = list(speculation.blocks(prompt, rule, tokens))
            rows.append(
                {"kind": kind, "setting": name, "temperature": heat, "text": number}
                | sums(blocks, resolution)
                | {"threshold": speculation.threshold and speculation.threshold.beta}
            )
        return rows

    heats = settings.size(TEMPERATURES, TEMPERATURES_QUICK)
    return measure_all(measure, list(product(kinds, CODINGS, heats)), progress)


def sums(blocks: list[VerifiedBlock], resolution: int) -> Row:
    """Return measured rejections, what is expected of them, and the bound's terms."""
    judged = [
        (each, Distribution.from_dense(p))
        for block in blocks
        for each, p in zip(block.judged, block.p, strict=False)
    ]
    dropped = [[each.quantized.dropped for each in block.judged] for block in blocks]
    accepted = [
        masses[-1] for masses, block in zip(dropped, blocks, strict=True) if not block.rejected
    ]
    kept: list[Any] = [each.quantized.code for each, _ in judged]
    return {
        "tokens": sum(len(block.tokens) for block in blocks),
        "batches": len(blocks),
        "judged": len(judged),
        "rejected": sum(block.rejected for block in blocks),
        "expected": sum(total_variation(each.quantized.distribution, p) for each, p in judged),
        "discrepancy": sum(
            total_variation(Distribution.from_dense(each.q), p) for each, p in judged
        ),
        "dropped": sum(map(sum, dropped)),
        "lattice": sum(point.ids.size for point in kept) / (4 * resolution),
        "steered": sum(map(sum, dropped)) + sum(accepted),
    }


def bound(row: Row) -> float:
    """Return Theorem 1's bound for one text."""
    return float(sum(row[term] for term in TERMS))


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return per judged token: rejected, expected and the bound; and Theorem 2."""
    above = sum(row["expected"] > bound(row) + ROUNDING for row in rows)
    summary: dict[str, Any] = {
        "texts_expected_above_bound": above,
        "per text": table(rows, "setting", "temperature", mean=("judged", "rejected")),
    }
    for (setting, heat), texts in grouped(rows, "setting", "temperature").items():
        judged = sum(row["judged"] for row in texts)
        found = {
            column: round(sum(row[column] for row in texts) / judged, 4)
            for column in ("rejected", "expected", *TERMS)
        }
        found["bound"] = round(sum(map(bound, texts)) / judged, 4)
        if texts[0]["threshold"] is not None:
            names = ("theorem2_dropped", "theorem2_bound", "last_threshold")
            numbers = (*theorem2(texts), texts[-1]["threshold"])
            found |= {name: significant(each, 4) for name, each in zip(names, numbers, strict=True)}
        summary.setdefault(setting, {})[str(heat)] = found
    return summary


def theorem2(texts: list[Row]) -> tuple[float, float]:
    """Return the mass dropped per token in all texts of one threshold, and its bound."""
    *_, beta, eta = CODINGS[texts[0]["setting"]]
    tokens = sum(row["tokens"] for row in texts)
    dropped = sum(row["steered"] for row in texts) / tokens
    return dropped, theorem2_bound(tokens, beta or 0.0, eta, ALPHA)


def plot(rows: list[Row], path: Path) -> None:
    """Draw each setting's bound as a stack of its terms, with what was measured; then Theorem 2."""
    with charts.picture(path, rows=2, columns=3, height_inches=5.6) as (_, axes):
        *panels, last = axes.flat
        for axis, ((setting,), some) in zip(panels, grouped(rows, "setting").items(), strict=False):
            _draw_terms(axis, some)
            axis.set_title(setting)
        panels[0].legend(fontsize=7.5, loc="upper left")
        _draw_theorem2(last, [row for row in rows if row["threshold"] is not None])
        for axis in axes[:, 0]:
            axis.set_ylabel("per drafted token")
        for axis in axes[1]:
            axis.set_xlabel("temperature")


def _draw_terms(axis: Any, rows: list[Row]) -> None:
    by_heat = grouped(rows, "temperature")
    places = range(len(by_heat))

    def shares(column: str) -> NDArray[np.float64]:
        """Return the column's part of all judged tokens, by temperature."""
        return np.array([mean(some, column) / mean(some, "judged") for some in by_heat.values()])

    height = np.zeros(len(by_heat))
    for term, (name, colour) in TERMS.items():
        axis.bar(places, shares(term), bottom=height, color=colour, width=0.7, label=name)
        height += shares(term)
    same = {"linestyle": "", "markeredgewidth": 1.8, "markerfacecolor": "none"}
    for column, marker, size, colour, name in (
        ("rejected", "o", 6, charts.BLACK, "rejected"),
        ("expected", "_", 15, charts.VERMILION, "TV(q̂, p)"),
    ):
        axis.plot(places, shares(column), marker, markersize=size, color=colour, label=name, **same)
    axis.set_xticks(places, [f"{heat:g}" for (heat,) in by_heat])
    for place in np.flatnonzero(height > HIGHEST):
        axis.text(place, 1.0, f"{height[place]:.1f} →", ha="center", va="top", rotation=90)
    axis.set_ylim(0, HIGHEST)


def _draw_theorem2(axis: Any, rows: list[Row]) -> None:
    for setting, look in charts.looks(distinct(rows, "setting"), line="").items():
        eta = setting.rpartition(", ")[2]
        by_heat = grouped(having(rows, setting=setting), "temperature")
        places = range(len(by_heat))
        dropped, limits = zip(*map(theorem2, by_heat.values()), strict=True)
        axis.plot(places, limits, "--", color=look.colour, label=f"bound, {eta}")
        axis.plot(places, dropped, **look.style(f"dropped, {eta}"))
        axis.set_xticks(places, [f"{heat:g}" for (heat,) in by_heat])
    axis.set(yscale="log", title="Theorem 2: dropped mass", ylabel="per token of the text")
    lowest, highest = axis.get_ylim()
    axis.set_ylim(lowest, 300 * highest)  # room for the legend
    axis.legend(fontsize=7.5, loc="upper left")
