"""`specfed-bias` and `specfed-acceptance`: what top-K uploads change (SPEC 3, SPECFED Fig. 2, 3).

Both reconstructions go through the runtime's codecs, so their half-precision values are part of
what is measured; the bound is that of exact values.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonrt.distributions import Distribution, codec, mix
from dragonrt.experiments import charts
from dragonrt.experiments.framework import Clock, Progress, Settings
from dragonrt.experiments.intervals import Row, estimates, grouped
from dragonrt.sampling import acceptance_change, aggregation_bias, bias_bound, missed_mass

if TYPE_CHECKING:
    from dragonrt.experiments.federated_text import FederatedPosition

TEMPERATURES = (0.4, 0.7, 1.0, 1.3)
KS = (4, 16, 64, 256, 1024, 4096)
FORMS = ("renorm", "residual")
TOKENS, TOKENS_QUICK = 16, 10
TEXTS_QUICK, TEXTS_PER_REPEAT = 6, 4
FP16_ERROR = 2.0**-10
"""At most so much of the total variation is half precision's: its values keep 11 bits."""


def measure(settings: Settings, progress: Progress) -> list[Row]:
    """A row per temperature, position, K and reconstruction."""
    from dragonrt.experiments.federated_text import Federation

    federation = Federation.load(settings)
    texts = TEXTS_QUICK if settings.quick else TEXTS_PER_REPEAT * settings.repeats
    tokens = TOKENS_QUICK if settings.quick else TOKENS
    rows: list[Row] = []
    for number, temperature in enumerate(TEMPERATURES):
        for position in federation.positions(temperature, texts, tokens, settings.seed):
            rows += changes(position, temperature, federation.weights)
            progress(number * texts + position.text, len(TEMPERATURES) * texts)
    return rows


def changes(
    position: "FederatedPosition", temperature: float, weights: list[float]
) -> Iterator[Row]:
    """The rows of one position."""
    exact = [Distribution.from_dense(p) for p in position.workers]
    draft = Distribution.from_dense(position.draft)
    target = mix(exact, weights)
    for k in KS:
        bound = bias_bound(weights, [missed_mass(p, k) for p in position.workers])
        for form in FORMS:
            code = codec(f"topk:{k}:{form}", position.draft.size)
            uploads = [code.quantize(p).distribution for p in position.workers]
            yield {
                "kind": position.kind,
                "temperature": temperature,
                "text": position.text,
                "step": position.step,
                "k": k,
                "reconstruction": form,
                "bound": bound,
                "bias": aggregation_bias(uploads, exact, weights),
                "acceptance_change": acceptance_change(draft, mix(uploads, weights), target),
            }


def summarise(rows: list[Row], column: str) -> dict[str, Any]:
    """Means over positions beside the bound, and whether the bound holds at every one of them."""
    excess = [row[column] - row["bound"] for row in rows]
    means = estimates(rows, column, "temperature", "k", "reconstruction", statistic="mean")
    bounds = estimates(rows, "bound", "temperature", "k", statistic="mean")
    by_temperature: dict[str, Any] = {}
    for (temperature, k), bound in bounds.items():
        by_temperature.setdefault(f"temperature {temperature:g}", {})[f"K = {k}"] = {
            "bound": float(f"{bound.value:.4g}"),
            **{form: means[temperature, k, form].to_json() for form in FORMS},
        }
    return {
        "positions": len({(row["temperature"], row["text"], row["step"]) for row in rows}),
        "rows_above_bound": sum(each > FP16_ERROR for each in excess),
        "largest_excess": float(f"{max(excess):.3g}"),
        "half_precision": FP16_ERROR,
        "residual_smaller": _residual_smaller(means),
        **by_temperature,
    }


def _residual_smaller(means: dict[tuple[Any, ...], Any]) -> str:
    """At how many of the points the residual reconstruction changes less, on average."""
    points = [key for key in means if key[2] == "residual"]
    smaller = sum(means[key].value < means[*key[:2], "renorm"].value for key in points)
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
        """A row per temperature, position, K and reconstruction."""
        rows = measure(settings, progress)
        return [{name: row[name] for name in row if name != self.other} for row in rows]

    def summarise(self, rows: list[Row]) -> dict[str, Any]:
        """Means beside the bound of Theorem 2 or 3, and whether it holds everywhere."""
        return summarise(rows, self.column)

    def plot(self, rows: list[Row], path: Path) -> None:
        """A panel per temperature: the mean of both reconstructions over K, below the bound."""
        panels = sorted(grouped(rows, "temperature").items())
        with charts.picture(
            path, columns=len(panels), height_inches=3.6, legend=3, sharey=True
        ) as (_, axes):
            for axis, ((heat,), some) in zip(axes[0], panels, strict=True):
                bounds = estimates(some, "bound", "k", statistic="mean")
                axis.plot(
                    [k for (k,) in bounds],
                    [each.value for each in bounds.values()],
                    color=charts.BLACK,
                    linestyle=":",
                    zorder=3,
                    label="bound $\\sum_i w_i r_i$",
                )
                found = estimates(some, self.column, "reconstruction", "k", statistic="mean")
                charts.lines(axis, found, charts.looks(FORMS))
                axis.set_xscale("log", base=4)
                axis.set_xticks(KS[::2], [str(k) for k in KS[::2]])
                axis.set(yscale="log", title=f"temperature {heat:g}", xlabel="K", ylim=(1e-5, 1))
            axes[0, 0].set_ylabel(self.label)


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
