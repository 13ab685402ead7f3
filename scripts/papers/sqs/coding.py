"""`sqs`: latency and resampling rate of K-SQS and C-SQS over temperature (SQS Fig. 2, 4 - 6).

Real models and messages in virtual time. A batch is drafted while its bits fit the budget, the next
one after the verdict. ℓ, η, α and the budget are the paper's, rates and delays those of QSV.
"""

from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from dragonrt.link.profile import LinkProfile
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.wire.fields import MAX_BLOCK
from scripts.lab.intervals import Row, averages, distinct, grouped, having, mean, table
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.speculation import BlockPace, PromptCase

NAME = "sqs"
SUMMARY = "Latency and resampling of K-SQS and C-SQS (SQS Fig. 2, 4-6; 15 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

TEMPERATURES, TEMPERATURES_QUICK = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), (0.2, 1.0)
BUDGET, RESOLUTION, ETA, ALPHA = 5000, 100, 0.001, 0.0005
PACE = BlockPace(0.010, 0.050, LinkProfile(up=100e3))
TOKENS, TOKENS_QUICK = 48, 24
CLOUD, K_SQS, C_SQS, FIXED = "cloud alone", "K-SQS", "C-SQS", "C-SQS, η = 0"


CODINGS = (
    *((K_SQS, f"K = {k}", f"ksqs:{k}:{RESOLUTION}", 0.0) for k in (8, 32, 128)),
    *(
        (C_SQS if eta else FIXED, f"β = {beta:g}", f"csqs:{beta}:{RESOLUTION}", eta)
        for eta in (ETA, 0.0)
        for beta in (0.001, 0.01, 0.05)
    ),
)
"""Method, parameter, codec, and the learning rate of the threshold."""
CODINGS_QUICK = tuple(each for each in CODINGS if each[1] in ("K = 32", "β = 0.01"))


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per text, temperature and coding, and one of the cloud alone."""
    texts = PromptCase.several(settings, settings.repeats * settings.size(2, 1))
    heats = settings.size(TEMPERATURES, TEMPERATURES_QUICK)
    codings, tokens = settings.size((CODINGS, TOKENS), (CODINGS_QUICK, TOKENS_QUICK))
    cases = list(product(texts, heats))
    return measure_all(partial(_measure, codings, tokens), cases, progress, processes=True)


def _measure(
    codings: tuple[tuple[str, str, str, float], ...], tokens: int, case: tuple[PromptCase, float]
) -> list[Row]:
    """Return the rows of one text at one temperature, with every coding."""
    text, temperature = case
    answers = text.answers(temperature, tokens)
    same = {"kind": text.prompt.kind, "temperature": temperature, "text": text.number}
    rows = [same | {"method": CLOUD, "parameter": ""} | answers.streamed(PACE)]
    for method, parameter, codec, eta in codings:
        settings = SpeculativeSettings(
            rule="rejection",
            codec=codec,
            block_tokens=MAX_BLOCK,
            budget=BUDGET,
            pipelined=False,
            learning_rate=eta,
            target=ALPHA,
        )
        named = {"method": method, "parameter": parameter}
        rows.append(same | named | answers.costs(settings, PACE))
    return rows


METRICS = ("seconds", "resampling_rate", "drafted_per_block", "bits_per_token", "tokens_per_call")


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return means over texts, the fastest K and β over all temperatures, and their crossover."""
    best = chosen(rows)
    own = [row for row in rows if best[row["method"]] == row["parameter"]]
    return {
        "best": best,
        "crossover": table(own, "temperature", "method", mean=METRICS[:2]),
        "all": table(rows, "method", "parameter", "temperature", mean=METRICS),
    }


def chosen(rows: list[Row]) -> dict[str, str]:
    """Return the fastest parameter of each method, on average over texts and temperatures."""
    best: dict[str, tuple[float, str]] = {}
    for (method, parameter), some in grouped(rows, "method", "parameter").items():
        candidate = (mean(some, "seconds"), parameter)
        best[method] = min(best.get(method, candidate), candidate)
    return {method: parameter for method, (_, parameter) in best.items()}


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
