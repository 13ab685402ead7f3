"""`sqs-bound`: rejections against Theorem 1 of SQS, dropped mass against Theorem 2 (SPEC 2).

Texts of the bundled pair under K-SQS and C-SQS. At every drafted token that was judged the terms of
Theorem 1 are known exactly, and so is its chance of being refused: TV(q̂, p), q̂ the quantized
distribution. One threshold is steered along all texts of a setting, as Theorem 2 has it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import ConformalThreshold, Distribution, codec, total_variation
from dragonrt.distributions.conformal import theorem2_bound
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.verification import speculative_rule
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, distinct, estimate, grouped, having, mean
from scripts.papers.speculation import JudgedBlock, Speculation, model_pair
from scripts.papers.texts import prompts

NAME = "sqs-bound"
SUMMARY = "Rejections and dropped mass against the bounds of SQS's Theorems 1 and 2 (15 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)

ALPHA = 0.0005
TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
TEMPERATURES_QUICK = (0.2, 0.6, 1.0)
TOKENS, TOKENS_QUICK = 64, 32
TEXTS = 3
"""Texts of each repeat; a quick run has one."""
LENGTH, BUDGET = 8, 5000
ROUNDING = 1e-9
HIGHEST = 1.05
"""Of the pictures: more than one rejection per drafted token says nothing."""


@dataclass(frozen=True, slots=True)
class BoundCoding:
    """A codec and, for C-SQS, the learning rate η of its threshold."""

    name: str
    codec: str
    resolution: int
    beta: float | None = None
    eta: float = 0.0

    def threshold(self) -> ConformalThreshold | None:
        """The first one."""
        return None if self.beta is None else ConformalThreshold(self.beta, self.eta, ALPHA)


CODINGS = (
    BoundCoding("K-SQS, K = 16, ℓ = 100", "ksqs:16:100", 100),
    BoundCoding("K-SQS, K = 64, ℓ = 100", "ksqs:64:100", 100),
    BoundCoding("K-SQS, K = 64, ℓ = 1000", "ksqs:64:1000", 1000),
    BoundCoding("C-SQS, β₁ = 0.01, η = 0.001", "csqs:0.01:100", 100, 0.01, 0.001),
    BoundCoding("C-SQS, β₁ = 0.01, η = 0.1", "csqs:0.01:100", 100, 0.01, 0.1),
)
TERMS = ("discrepancy", "dropped", "lattice")
"""Of Theorem 1: Σ TV(q, p), Σ α_n(X_n) and Σ K_n / (4 ℓ_n)."""


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per setting, temperature and text: sums over its judged tokens."""

    pair = model_pair(settings.draft, settings.target)
    heats = TEMPERATURES_QUICK if settings.quick else TEMPERATURES
    texts = settings.repeats * (1 if settings.quick else TEXTS)
    tokens = TOKENS_QUICK if settings.quick else TOKENS
    asked = prompts(pair.draft, texts, settings.corpus)
    rows: list[Row] = []
    for coding in CODINGS:
        coder = codec(coding.codec, pair.draft.vocabulary)
        for heat in heats:
            threshold = coding.threshold()
            speculation = Speculation(
                pair, coder, length=LENGTH, budget=BUDGET, threshold=threshold
            )
            for number, prompt in enumerate(asked):
                noise = Noise(settings.seed * texts + number)
                rule = speculative_rule("rejection", noise, Sampler(heat))
                blocks = list(speculation.blocks(prompt, rule, tokens))
                rows.append(
                    {"kind": prompt.kind, "setting": coding.name, "temperature": heat}
                    | {"text": number}
                    | sums(blocks, coding.resolution)
                    | {"threshold": _beta(speculation)}
                )
                progress(len(rows), len(CODINGS) * len(heats) * texts)
    return rows


def sums(blocks: list[JudgedBlock], resolution: int) -> Row:
    """Measured rejections, what is expected of them, and the bound's terms.

    `steered` is the dropped mass as C-SQS's threshold counts it, once for each token of the text.
    """
    judged = [each for block in blocks for each in block.judged]
    targets = [p for block in blocks for p, _ in zip(block.p, block.judged, strict=False)]
    exact = [Distribution.from_dense(p) for p in targets]
    dropped = [[each.quantized.dropped for each in block.judged] for block in blocks]
    return {
        "tokens": sum(len(block.tokens) for block in blocks),
        "batches": len(blocks),
        "judged": len(judged),
        "rejected": sum(block.refused for block in blocks),
        "expected": sum(
            total_variation(each.quantized.distribution, p)
            for each, p in zip(judged, exact, strict=True)
        ),
        "discrepancy": sum(
            total_variation(Distribution.from_dense(each.q), p)
            for each, p in zip(judged, exact, strict=True)
        ),
        "dropped": sum(map(sum, dropped)),
        "lattice": sum(_kept(each.quantized.code) for each in judged) / (4 * resolution),
        "steered": sum(map(sum, dropped))
        + sum(
            masses[-1] for masses, block in zip(dropped, blocks, strict=True) if not block.refused
        ),
    }


def _kept(code: Any) -> int:
    """K_n of a lattice point."""
    size: int = code.ids.size
    return size


def _beta(speculation: Speculation) -> float | None:
    return None if speculation.threshold is None else speculation.threshold.beta


def bound(row: Row) -> float:
    """Theorem 1's for one text."""
    return float(sum(row[term] for term in TERMS))


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Per judged token: measured with its interval over texts, expected, bound; and Theorem 2."""
    above = sum(row["expected"] > bound(row) + ROUNDING for row in rows)
    summary: dict[str, Any] = {"texts_expected_above_bound": above}
    for (setting, heat), texts in grouped(rows, "setting", "temperature").items():
        judged = sum(row["judged"] for row in texts)
        rejected = sum(row["rejected"] for row in texts)
        found = {
            "judged": judged,
            "rejected_per_text": estimate([row["rejected"] for row in texts], "mean").to_json(),
            "rejected": round(rejected / judged, 4),
            "expected": round(sum(row["expected"] for row in texts) / judged, 4),
            "bound": round(sum(map(bound, texts)) / judged, 4),
            **{term: round(sum(row[term] for row in texts) / judged, 4) for term in TERMS},
        }
        if texts[0]["threshold"] is not None:
            dropped, limit = theorem2(texts)
            found |= {"theorem2_dropped": float(f"{dropped:.4g}")}
            found |= {"theorem2_bound": float(f"{limit:.4g}")}
            found |= {"last_threshold": float(f"{texts[-1]['threshold']:.4g}")}
        summary.setdefault(setting, {})[str(heat)] = found
    return summary


def theorem2(texts: list[Row]) -> tuple[float, float]:
    """The mass dropped per token in all texts of one threshold, and what it may be at most."""
    coding = next(each for each in CODINGS if each.name == texts[0]["setting"])
    tokens = sum(row["tokens"] for row in texts)
    dropped = sum(row["steered"] for row in texts) / tokens
    return dropped, theorem2_bound(tokens, coding.beta or 0.0, coding.eta, ALPHA)


def plot(rows: list[Row], path: Path) -> None:
    """For each setting the bound's terms as a stack, with what was measured; then Theorem 2."""
    with charts.picture(path, rows=2, columns=3, height_inches=5.6) as (_, axes):
        *panels, last = axes.flat
        for axis, ((setting,), some) in zip(panels, grouped(rows, "setting").items(), strict=False):
            _draw_terms(axis, some)
            axis.set_title(setting)
        panels[0].legend(fontsize=7.5, loc="upper left")
        _draw_theorem2(last, rows)
        for axis in axes[:, 0]:
            axis.set_ylabel("per drafted token")
        for axis in axes[1]:
            axis.set_xlabel("temperature")


def _draw_terms(axis: Any, rows: list[Row]) -> None:
    by_heat = grouped(rows, "temperature")
    places = range(len(by_heat))

    def shares(column: str) -> NDArray[np.float64]:
        """The column's part of all judged tokens, by temperature."""
        return np.array([mean(some, column) / mean(some, "judged") for some in by_heat.values()])

    height = np.zeros(len(by_heat))
    names = ("TV(q, p)", "dropped mass α", "lattice K/(4ℓ)")
    colours = (charts.SKY, charts.ORANGE, charts.GREY)
    for term, name, colour in zip(TERMS, names, colours, strict=True):
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
    steered = [row for row in rows if row["threshold"] is not None]
    looks = charts.looks(distinct(steered, "setting"), line="")
    for setting, look in looks.items():
        eta = setting.rpartition(", ")[2]
        by_heat = grouped(having(steered, setting=setting), "temperature")
        places = range(len(by_heat))
        dropped, limits = zip(*map(theorem2, by_heat.values()), strict=True)
        axis.plot(places, limits, "--", color=look.colour, label=f"bound, {eta}")
        axis.plot(places, dropped, **look.style(f"dropped, {eta}"))
        axis.set_xticks(places, [f"{heat:g}" for (heat,) in by_heat])
    axis.set(yscale="log", title="Theorem 2: dropped mass", ylabel="per token of the text")
    lowest, highest = axis.get_ylim()
    axis.set_ylim(lowest, 300 * highest)  # room for the legend
    axis.legend(fontsize=7.5, loc="upper left")
