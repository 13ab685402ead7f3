"""`sqs`: latency and resampling rate of K-SQS and C-SQS over temperature (SQS Fig. 2, 4 - 6).

Real models and messages in virtual time. As in the paper a batch is drafted while its bits fit the
budget, and the next one only after the verdict; ℓ, η, α and the budget are the paper's. It states
neither the uplink's rate nor the models' delays: ours are those of QSV's setting, a narrow uplink
without propagation delay.
"""

from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from dragonrt.link.profile import LinkProfile
from dragonrt.modes.settings import SpeculativeSettings
from dragonrt.wire.limits import MAX_BLOCK
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.intervals import Row, averages, distinct, grouped, having, mean
from scripts.papers.model_sides import BlockPace, PromptCase

NAME = "sqs"
SUMMARY = "Latency and resampling of K-SQS and C-SQS (SQS Fig. 2, 4-6; 15 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

TEMPERATURES, TEMPERATURES_QUICK = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), (0.2, 1.0)
BUDGET, RESOLUTION, ETA, ALPHA = 5000, 100, 0.001, 0.0005
PACE = BlockPace(0.010, 0.050, LinkProfile(up=100e3))
TOKENS, TOKENS_QUICK = 48, 24
CLOUD, K_SQS, C_SQS, FIXED = "cloud alone", "K-SQS", "C-SQS", "C-SQS, η = 0"


@dataclass(frozen=True, slots=True)
class SqsCoding:
    """A method, its K or β, the codec's name, and the learning rate of the threshold."""

    method: str
    parameter: str
    codec: str
    eta: float = 0.0


def _k_sqs(k: int) -> SqsCoding:
    return SqsCoding(K_SQS, f"K = {k}", f"ksqs:{k}:{RESOLUTION}")


def _c_sqs(beta: float, eta: float) -> SqsCoding:
    return SqsCoding(C_SQS if eta else FIXED, f"β = {beta:g}", f"csqs:{beta}:{RESOLUTION}", eta)


CODINGS = (
    *map(_k_sqs, (8, 32, 128)),
    *(_c_sqs(beta, eta) for eta in (ETA, 0.0) for beta in (0.001, 0.01, 0.05)),
)
CODINGS_QUICK = (_k_sqs(32), _c_sqs(0.01, ETA), _c_sqs(0.01, 0.0))


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per text, temperature and coding, and one of the cloud alone.

    `seconds` is up to the answer's last token.
    """
    texts = PromptCase.several(settings, 2 * settings.repeats * settings.size(2, 1))
    heats = settings.size(TEMPERATURES, TEMPERATURES_QUICK)
    codings, tokens = settings.size((CODINGS, TOKENS), (CODINGS_QUICK, TOKENS_QUICK))
    cases = list(product(texts, heats))
    return measure_all(partial(_measure, codings, tokens), cases, progress, processes=True)


def _measure(
    codings: tuple[SqsCoding, ...], tokens: int, case: tuple[PromptCase, float]
) -> list[Row]:
    """Return the rows of one text at one temperature, with every coding."""
    text, temperature = case
    answers, question = text.answers(), text.question(temperature, tokens)
    same = {"kind": text.prompt.kind, "temperature": temperature, "text": text.number}
    rows = [same | {"method": CLOUD, "parameter": ""} | answers.streamed(question, PACE)]
    for coding in codings:
        settings = SpeculativeSettings(
            rule="rejection",
            codec=coding.codec,
            block_tokens=MAX_BLOCK,
            budget=BUDGET,
            pipelined=False,
            learning_rate=coding.eta,
            target=ALPHA,
        )
        named = {"method": coding.method, "parameter": coding.parameter}
        rows.append(same | named | answers.costs(question, settings, PACE))
    return rows


METRICS = ("seconds", "resampling_rate", "drafted_per_block", "bits_per_token", "tokens_per_call")


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return means over texts; at each temperature the best K and the best β.

    `crossover` says which of the two methods is faster, and which resamples less often, each with
    the parameter that is fastest over all temperatures.
    """
    summary: dict[str, Any] = {"crossover": _crossover(rows)}
    for metric in METRICS:
        for key, each in averages(rows, metric, "method", "parameter", "temperature").items():
            method, parameter, heat = key
            name = f"{method}, {parameter}" if parameter else method
            summary.setdefault(name, {}).setdefault(str(heat), {})[metric] = each.to_json()
    return summary


def chosen(rows: list[Row]) -> dict[str, str]:
    """Return the fastest parameter of each method, on average over texts and temperatures."""
    best: dict[str, tuple[float, str]] = {}
    for (method, parameter), some in grouped(rows, "method", "parameter").items():
        candidate = (mean(some, "seconds"), parameter)
        best[method] = min(best.get(method, candidate), candidate)
    return {method: parameter for method, (_, parameter) in best.items()}


def _crossover(rows: list[Row]) -> dict[str, Any]:
    best = chosen(rows)
    found: dict[str, Any] = {method: best[method] for method in (K_SQS, C_SQS)}
    for (heat,), some in sorted(grouped(rows, "temperature").items()):
        at: dict[str, Any] = {}
        for metric in METRICS[:2]:
            means = {
                method: mean(having(some, method=method, parameter=best[method]), metric)
                for method in (K_SQS, C_SQS)
            }
            at[f"lower {metric}"] = min(means, key=means.__getitem__)
            at |= {f"{method} {metric}": round(value, 4) for method, value in means.items()}
        found[str(heat)] = at
    return found


def plot(rows: list[Row], path: Path) -> None:
    """Draw latency above resampling rate: both methods at their best, K-SQS, C-SQS."""
    best = chosen(rows)
    columns = {
        "best K and β (Fig. 2, 6)": {(CLOUD, ""): charts.Look(charts.GREY, "o", ":", label=CLOUD)}
        | {
            (method, best[method]): replace(look, label=f"{method}, {best[method]}")
            for method, look in charts.looks((K_SQS, C_SQS)).items()
        },
        "K-SQS over K (Fig. 4)": _looks(rows, K_SQS),
        "C-SQS over β (Fig. 4, 5)": _looks(rows, C_SQS) | _looks(rows, FIXED),
    }
    named = [row | {"setting": (row["method"], row["parameter"])} for row in rows]
    size: dict[str, Any] = {"rows": 2, "columns": 3, "height_inches": 6.4}
    with charts.picture(path, **size, sharex=True, sharey="row") as (_, axes):
        for metric, row_axes in zip(METRICS, axes, strict=False):
            found = averages(named, metric, "setting", "temperature")
            for axis, settings in zip(row_axes, columns.values(), strict=True):
                charts.lines(axis, found, settings, apart=0.012)
        for title, (upper, lower) in zip(columns, axes.T, strict=True):
            upper.set(title=title, ylim=(0, None))
            lower.set(xlabel="temperature", ylim=(0, 1.05))
            named_above = upper.get_legend_handles_labels()  # latency has the cloud alone, too
            lower.legend(
                *named_above, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2
            )
        axes[0, 0].set_ylabel("latency (s per answer)")
        axes[1, 0].set_ylabel("resampling rate")


def _looks(rows: list[Row], method: str) -> dict[tuple[str, str], charts.Look]:
    """Return the looks of a method's parameters; dashed if the threshold does not adapt."""
    fixed = method == FIXED
    looks = charts.looks(
        distinct(having(rows, method=method), "parameter"),
        line="--" if fixed else "-",
        filled=not fixed,
    )
    return {
        (method, parameter): replace(look, label=parameter + ", η = 0" * fixed)
        for parameter, look in looks.items()
    }
