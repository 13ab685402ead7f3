"""`specfed-bias` and `specfed-acceptance`: what top-K uploads change (SPEC 3, SPECFED Fig. 2, 3).

Both reconstructions go through the runtime's codecs, so their half-precision values are part of
what is measured; the bound is that of exact values. At the same positions workers weigh alike, and
one weighs more than the others (as `--worker HOST:PORT=0.7` does).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from dragonrt.distributions import Distribution, codec, mix
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, averages, distinct, grouped
from scripts.papers.specfed.federated_text import FederatedPosition, Federation
from scripts.papers.theory import acceptance_change, aggregation_bias, bias_bound, missed_mass

TEMPERATURES = (0.4, 0.7, 1.0, 1.3)
KS = (4, 16, 64, 256, 1024, 4096)
FORMS = ("renorm", "residual")
TOKENS, TOKENS_QUICK = 16, 10
TEXTS_QUICK, TEXTS_PER_REPEAT = 6, 4
FP16_ERROR = 2.0**-10
"""At most so much of the total variation is half precision's: its values keep 11 bits."""


def measure(settings: Settings, progress: Progress) -> list[Row]:
    """A row per temperature, position, K, reconstruction and weights."""

    federation = Federation.load(settings)
    texts = TEXTS_QUICK if settings.quick else TEXTS_PER_REPEAT * settings.repeats
    tokens = TOKENS_QUICK if settings.quick else TOKENS
    rows: list[Row] = []
    for number, temperature in enumerate(TEMPERATURES):
        for position in federation.positions(temperature, texts, tokens, settings.seed):
            rows += changes(position, temperature, federation.weightings)
            progress(number * texts + position.text, len(TEMPERATURES) * texts)
    return rows


def changes(
    position: FederatedPosition, temperature: float, weightings: Mapping[str, list[float]]
) -> Iterator[Row]:
    """The rows of one position."""
    exact = [Distribution.from_dense(p) for p in position.workers]
    draft = Distribution.from_dense(position.draft)
    targets = {name: mix(exact, weights) for name, weights in weightings.items()}
    for k in KS:
        missed = [missed_mass(p, k) for p in position.workers]
        for form in FORMS:
            code = codec(f"topk:{k}:{form}", position.draft.size)
            uploads = [code.quantize(p).distribution for p in position.workers]
            for name, weights in weightings.items():
                change = acceptance_change(draft, mix(uploads, weights), targets[name])
                yield {
                    "kind": position.kind,
                    "weights": name,
                    "temperature": temperature,
                    "text": position.text,
                    "step": position.step,
                    "k": k,
                    "reconstruction": form,
                    "bound": bias_bound(weights, missed),
                    "bias": aggregation_bias(uploads, exact, weights),
                    "acceptance_change": change,
                }


def summarise(rows: list[Row], column: str) -> dict[str, Any]:
    """Means over positions beside the bound, and whether the bound holds at every one of them."""
    excess = [row[column] - row["bound"] for row in rows]
    keys = ("weights", "temperature", "k")
    means = averages(rows, column, *keys, "reconstruction")
    bounds = averages(rows, "bound", *keys)
    by_weights: dict[str, Any] = {}
    for (weights, temperature, k), bound in bounds.items():
        by_temperature = by_weights.setdefault(weights, {})
        by_temperature.setdefault(f"temperature {temperature:g}", {})[f"K = {k}"] = {
            "bound": float(f"{bound.value:.4g}"),
            **{form: means[weights, temperature, k, form].to_json() for form in FORMS},
        }
    return {
        "positions": len({(row["temperature"], row["text"], row["step"]) for row in rows}),
        "rows_above_bound": sum(each > FP16_ERROR for each in excess),
        "largest_excess": float(f"{max(excess):.3g}"),
        "half_precision": FP16_ERROR,
        "residual_smaller": _residual_smaller(means),
        **by_weights,
    }


def _residual_smaller(means: dict[tuple[Any, ...], Any]) -> str:
    """At how many of the points the residual reconstruction changes less, on average."""
    points = [key for key in means if key[-1] == "residual"]
    smaller = sum(means[key].value < means[*key[:-1], "renorm"].value for key in points)
    return f"{smaller} of {len(points)} points"


@dataclass(frozen=True)
class TopKUploads:
    """The experiment on one of the two columns: `bias` of the target, or `acceptance_change`."""

    NAME: str
    SUMMARY: str
    column: str
    other: str
    label: str
    CLOCKS: tuple[Clock, ...] = ("real",)

    def run(self, settings: Settings, progress: Progress) -> list[Row]:
        """A row per temperature, position, K, reconstruction and weights."""
        rows = measure(settings, progress)
        return [{name: row[name] for name in row if name != self.other} for row in rows]

    def summarise(self, rows: list[Row]) -> dict[str, Any]:
        """Means beside the bound of Theorem 2 or 3, and whether it holds everywhere."""
        return summarise(rows, self.column)

    def plot(self, rows: list[Row], path: Path) -> None:
        """A row of panels per weights, of the mean of both reconstructions below the bound.

        Each row has a panel per temperature.
        """
        weightings, heats = distinct(rows, "weights"), sorted(distinct(rows, "temperature"))
        panels = grouped(rows, "weights", "temperature")
        with charts.picture(
            path,
            rows=len(weightings),
            columns=len(heats),
            height_inches=1.2 + 2.4 * len(weightings),
            legend=3,
            sharex=True,
            sharey=True,
        ) as (figure, axes):
            for axis, key in zip(axes.flat, product(weightings, heats), strict=True):
                some = panels[key]
                bounds = averages(some, "bound", "k")
                axis.plot(
                    [k for (k,) in bounds],
                    [each.value for each in bounds.values()],
                    color=charts.BLACK,
                    linestyle=":",
                    zorder=3,
                    label="bound $\\sum_i w_i r_i$",
                )
                found = averages(some, self.column, "reconstruction", "k")
                charts.lines(axis, found, charts.looks(FORMS))
                axis.set_xscale("log", base=4)
                axis.set_xticks(KS[::2], [str(k) for k in KS[::2]])
                axis.set(yscale="log", ylim=(1e-5, 1))
            for axis, heat in zip(axes[0], heats, strict=True):
                axis.set_title(f"temperature {heat:g}")
            for axis in axes[-1]:
                axis.set_xlabel("K")
            for axis, weights in zip(axes[:, 0], weightings, strict=True):
                axis.set_ylabel(weights.replace(", ", ",\n"), fontsize=9)
            figure.suptitle(f"{self.label}, by the workers' weights")


BIAS = TopKUploads(
    "specfed-bias",
    "Aggregation bias of top-K uploads over K and temperature (SPECFED Fig. 2; 3 minutes)",
    "bias",
    "acceptance_change",
    "aggregation bias (TV), mean",
)
ACCEPTANCE = TopKUploads(
    "specfed-acceptance",
    "Acceptance change by top-K uploads over K and temperature (SPECFED Fig. 3; 3 minutes)",
    "acceptance_change",
    "bias",
    "change of acceptance, mean",
)
