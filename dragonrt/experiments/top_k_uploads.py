"""What top-K uploads change in a federated target, over K and temperature (SPEC 3, SPECFED V).

Both reconstructions go through the runtime's codecs, so their half-precision values are part of
what is measured; the bound is that of exact values.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonrt.distributions import Distribution, codec, mix
from dragonrt.experiments import style
from dragonrt.experiments.framework import Progress, Settings
from dragonrt.experiments.statistics import Row, estimates
from dragonrt.sampling import acceptance_change, aggregation_bias, bias_bound, missed_mass

if TYPE_CHECKING:
    from dragonrt.experiments.federated_text import Position

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

    federation = Federation.load()
    texts = TEXTS_QUICK if settings.quick else TEXTS_PER_REPEAT * settings.repeats
    tokens = TOKENS_QUICK if settings.quick else TOKENS
    rows: list[Row] = []
    for number, temperature in enumerate(TEMPERATURES):
        for position in federation.positions(temperature, texts, tokens, settings.seed):
            rows += changes(position, temperature)
            progress(number * texts + position.text, len(TEMPERATURES) * texts)
    return rows


def changes(position: "Position", temperature: float) -> Iterator[Row]:
    """The rows of one position."""
    from dragonrt.experiments.federated_text import WEIGHTS

    exact = [Distribution.from_dense(p) for p in position.workers]
    draft = Distribution.from_dense(position.draft)
    target = mix(exact, WEIGHTS)
    for k in KS:
        bound = bias_bound(WEIGHTS, [missed_mass(p, k) for p in position.workers])
        for form in FORMS:
            code = codec(f"topk:{k}:{form}", position.draft.size)
            uploads = [code.decode(code.encode(p)) for p in position.workers]
            yield {
                "temperature": temperature,
                "text": position.text,
                "step": position.step,
                "k": k,
                "reconstruction": form,
                "bound": bound,
                "bias": aggregation_bias(uploads, exact, WEIGHTS),
                "acceptance_change": acceptance_change(draft, mix(uploads, WEIGHTS), target),
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


def draw(rows: list[Row], column: str, label: str, path: Path) -> None:
    """A panel per temperature: the mean of both reconstructions over K, below the bound."""
    found = estimates(rows, column, "temperature", "reconstruction", "k", statistic="mean")
    bounds = estimates(rows, "bound", "temperature", "k", statistic="mean")
    heats = sorted({row["temperature"] for row in rows})
    with style.picture(path, columns=len(heats), height_inches=3.6, sharey=True) as (figure, axes):
        for axis, heat in zip(axes, heats, strict=True):
            points = [(k, each.value) for (one, k), each in bounds.items() if one == heat]
            axis.plot(
                *zip(*points, strict=True),
                color=style.BLACK,
                linestyle=":",
                zorder=3,
                label="bound $\\sum_i w_i r_i$",
            )
            for form, colour, marker in zip(FORMS, style.COLOURS, style.MARKERS, strict=False):
                curve = [
                    (k, each)
                    for (one, name, k), each in found.items()
                    if (one, name) == (heat, form)
                ]
                axis.errorbar(
                    [k for k, _ in curve],
                    [each.value for _, each in curve],
                    yerr=[
                        [each.value - each.low for _, each in curve],
                        [each.high - each.value for _, each in curve],
                    ],
                    color=colour,
                    marker=marker,
                    capsize=2,
                    label=form,
                )
            axis.set_xscale("log", base=4)
            axis.set_xticks(KS[::2], [str(k) for k in KS[::2]])
            axis.set_yscale("log")
            axis.set_title(f"temperature {heat:g}")
            axis.set_xlabel("K")
        axes[0].set_ylabel(label)
        axes[0].set_ylim(1e-5, 1)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
