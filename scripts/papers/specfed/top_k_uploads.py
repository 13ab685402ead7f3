"""`specfed-uploads`: what top-K uploads change (SPEC 3, SPECFED Fig. 2, 3).

Their aggregation bias (Theorem 2), and how much it changes how often drafts are accepted
(Theorem 3): a picture of each. Both reconstructions go through the runtime's codecs, so their
half-precision values are part of what is measured; the bound is that of exact values. At the same
positions workers weigh alike, and one weighs more than the others (as `--worker HOST:PORT=0.7`).
"""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from dragonrt.distributions import Distribution, codec, mix
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.intervals import Row, averages, distinct, grouped, significant
from scripts.papers.specfed.federated_text import FederatedPosition, Federation
from scripts.papers.theory import acceptance_change, aggregation_bias, bias_bound, missed_mass

NAME = "specfed-uploads"
SUMMARY = "Bias and acceptance change of top-K uploads over K (SPECFED Fig. 2, 3; 3 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)

TEMPERATURES = (0.4, 0.7, 1.0, 1.3)
KS = (4, 16, 64, 256, 1024, 4096)
FORMS = ("renorm", "residual")
TOKENS, TOKENS_QUICK = 16, 10
TEXTS_QUICK, TEXTS_PER_REPEAT = 6, 4
FP16_ERROR = 2.0**-10
"""At most so much of the total variation is half precision's: its values keep 11 bits."""
CHANGES = {"bias": "aggregation bias (TV), mean", "acceptance_change": "change of acceptance, mean"}


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per temperature, position, K, reconstruction and weights."""
    federation = Federation.load(settings)
    texts = settings.size(TEXTS_PER_REPEAT * settings.repeats, TEXTS_QUICK)
    tokens = settings.size(TOKENS, TOKENS_QUICK)

    def measure(temperature: float) -> Iterator[Row]:
        for position in federation.positions(temperature, texts, tokens, settings.seed):
            yield from changes(position, temperature, federation.weightings)

    return measure_all(measure, TEMPERATURES, progress)


def changes(
    position: FederatedPosition, temperature: float, weightings: Mapping[str, list[float]]
) -> Iterator[Row]:
    """Yield the rows of one position."""
    exact = [Distribution.from_dense(p) for p in position.workers]
    draft = Distribution.from_dense(position.draft)
    targets = {name: mix(exact, weights) for name, weights in weightings.items()}
    for k, form in product(KS, FORMS):
        missed = [missed_mass(p, k) for p in position.workers]
        code = codec(f"topk:{k}:{form}", position.draft.size)
        uploads = [code.quantize(p).distribution for p in position.workers]
        for name, weights in weightings.items():
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
                "acceptance_change": acceptance_change(draft, mix(uploads, weights), targets[name]),
            }


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return means beside the bound, and whether the bound holds at every position."""
    positions = len({(row["temperature"], row["text"], row["step"]) for row in rows})
    return {"positions": positions, "half_precision": FP16_ERROR} | {
        column: _beside_bound(rows, column) for column in CHANGES
    }


def _beside_bound(rows: list[Row], column: str) -> dict[str, Any]:
    excess = [row[column] - row["bound"] for row in rows]
    keys = ("weights", "temperature", "k")
    means = {
        form: averages([row for row in rows if row["reconstruction"] == form], column, *keys)
        for form in FORMS
    }
    smaller = sum(
        means["residual"][key].value < each.value for key, each in means["renorm"].items()
    )
    found: dict[str, Any] = {
        "rows_above_bound": sum(each > FP16_ERROR for each in excess),
        "largest_excess": significant(max(excess), 3),
        "residual_smaller": f"{smaller} of {len(means['renorm'])} points",
    }
    for key, bound in averages(rows, "bound", *keys).items():
        weights, temperature, k = key
        by_k = found.setdefault(weights, {}).setdefault(f"temperature {temperature:g}", {})
        by_k[f"K = {k}"] = {"bound": significant(bound.value, 4)} | {
            form: means[form][key].to_json() for form in FORMS
        }
    return found


def plot(rows: list[Row], path: Path) -> None:
    """Draw the bias at `path` and the change of acceptance beside it.

    A row of panels per weights, a column per temperature: the means below the bound.
    """
    weightings, heats = distinct(rows, "weights"), sorted(distinct(rows, "temperature"))
    panels = grouped(rows, "weights", "temperature")
    size: dict[str, Any] = {"rows": len(weightings), "columns": len(heats)}
    size["height_inches"] = 1.2 + 2.4 * len(weightings)
    bounds = {"bound": charts.Look(charts.BLACK, "", ":", label="bound $\\sum_i w_i r_i$")}
    for column, label in CHANGES.items():
        own = path if column == "bias" else path.with_stem(f"{path.stem}-acceptance")
        with charts.picture(own, **size, legend=3, sharex=True, sharey=True) as (figure, axes):
            for axis, key in zip(axes.flat, product(weightings, heats), strict=True):
                bound = averages(panels[key], "bound", "k")
                curve = {("bound", k): each for (k,), each in bound.items()}
                charts.lines(axis, curve, bounds, intervals=False)
                found = averages(panels[key], column, "reconstruction", "k")
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
            figure.suptitle(f"{label}, by the workers' weights")
