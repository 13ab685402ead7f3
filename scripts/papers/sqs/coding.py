"""`sqs`: latency and resampling rate of K-SQS and C-SQS over temperature (SQS Fig. 2, 4 - 6).

Real models and messages in virtual time. As in the paper a batch is drafted while its bits fit the
budget, and the next one only once the verdict is known; ℓ, η, α and the budget are the paper's. It
states neither the uplink's rate nor the models' delays: ours are those of QSV's setting, a narrow
uplink without propagation delay.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dragonrt.link.profile import LinkProfile
from dragonrt.modes.settings import SpeculativeSettings
from dragonrt.wire.limits import MAX_BLOCK
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, averages, distinct, grouped, having, mean
from scripts.papers.model_sides import BlockPace, PromptCase
from scripts.papers.parallel import measure_all

NAME = "sqs"
SUMMARY = "Latency and resampling of K-SQS and C-SQS (SQS Fig. 2, 4-6; 15 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
TEMPERATURES_QUICK = (0.2, 1.0)
BUDGET, RESOLUTION, ETA, ALPHA = 5000, 100, 0.001, 0.0005
RATE = 100e3
"""Of the uplink, in bit/s."""
DRAFT_S, TARGET_S = 0.010, 0.050
TOKENS, TOKENS_QUICK = 48, 24
CLOUD = "cloud alone"


@dataclass(frozen=True, slots=True)
class SqsCoding:
    """K-SQS of size `k`, or C-SQS that begins with the threshold `beta` and learns at `eta`."""

    k: int = 0
    beta: float = 0.0
    eta: float = 0.0

    @property
    def method(self) -> str:
        if self.k:
            return "K-SQS"
        return "C-SQS" if self.eta else "C-SQS, η = 0"

    @property
    def parameter(self) -> str:
        """K or β."""
        return f"K = {self.k}" if self.k else f"β = {self.beta:g}"

    @property
    def codec(self) -> str:
        """The codec's name."""
        return f"ksqs:{self.k}:{RESOLUTION}" if self.k else f"csqs:{self.beta}:{RESOLUTION}"


BETAS = (0.001, 0.01, 0.05)
CODINGS = (
    *(SqsCoding(k=k) for k in (8, 32, 128)),
    *(SqsCoding(beta=beta, eta=ETA) for beta in BETAS),
    *(SqsCoding(beta=beta) for beta in BETAS),
)
CODINGS_QUICK = (SqsCoding(k=32), SqsCoding(beta=0.01, eta=ETA), SqsCoding(beta=0.01))


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per text, temperature and coding, and one of the cloud alone.

    `latency_s` is up to the answer's last token.
    """

    texts = PromptCase.several(settings, 2 * settings.repeats * (1 if settings.quick else 2))
    heats = TEMPERATURES_QUICK if settings.quick else TEMPERATURES
    codings = CODINGS_QUICK if settings.quick else CODINGS
    tokens = TOKENS_QUICK if settings.quick else TOKENS
    cases = [(text, heat) for text in texts for heat in heats]
    measure = partial(_measure, codings, tokens)
    return [row for rows in measure_all(measure, cases, progress) for row in rows]


def _measure(
    codings: tuple[SqsCoding, ...], tokens: int, case: tuple[PromptCase, float]
) -> list[Row]:
    """One text at one temperature, with every coding."""

    text, temperature = case
    answers = text.answers()
    pace = BlockPace(DRAFT_S, TARGET_S, LinkProfile(up=RATE))
    question = text.question(temperature, tokens)
    count = answers.alone(question)
    rows: list[Row] = [
        {
            "kind": text.prompt.kind,
            "method": CLOUD,
            "parameter": "",
            "temperature": temperature,
            "text": text.number,
            "tokens": count,
            "batches": 0,
            "resampled": None,
            "latency_s": pace.streamed_s(count),
            "resampling_rate": None,
            "drafted_per_batch": None,
            "accepted_per_batch": None,
            "bits_per_token": None,
            "tokens_per_call": 1.0,
        }
    ]
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
        answer = answers.answer(question, settings, pace)
        counts = answer.counts
        rows.append(
            {
                "kind": text.prompt.kind,
                "method": coding.method,
                "parameter": coding.parameter,
                "temperature": temperature,
                "text": text.number,
                "tokens": len(answer.tokens),
                "batches": counts.verified,
                "resampled": counts.resampled,
                "latency_s": answer.seconds,
                "resampling_rate": counts.resampled / counts.verified,
                "drafted_per_batch": counts.block_tokens / counts.blocks,
                "accepted_per_batch": counts.stood / counts.verified,
                "bits_per_token": counts.bits / len(answer.tokens),
                "tokens_per_call": len(answer.tokens) / counts.verified,
            }
        )
    return rows


METRICS = (
    "latency_s",
    "resampling_rate",
    "drafted_per_batch",
    "bits_per_token",
    "tokens_per_call",
)


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Means with their intervals over texts; at each temperature the best K and the best β.

    `crossover` says which of the two methods is faster, and which resamples less often, each with
    the parameter that is fastest over all temperatures.
    """
    summary: dict[str, Any] = {"crossover": _crossover(rows)}
    found = {
        metric: averages(rows, metric, "method", "parameter", "temperature") for metric in METRICS
    }
    for method, parameter, heat in found["latency_s"]:
        name = f"{method}, {parameter}" if parameter else method
        summary.setdefault(name, {})[str(heat)] = {
            metric: found[metric][method, parameter, heat].to_json()
            for metric in METRICS
            if (method, parameter, heat) in found[metric]
        }
    return summary


def chosen(rows: list[Row]) -> dict[str, str]:
    """For each method the parameter that is fastest on average over texts and temperatures."""
    best: dict[str, tuple[float, str]] = {}
    for (method, parameter), some in grouped(rows, "method", "parameter").items():
        candidate = (mean(some, "latency_s"), parameter)
        best[method] = min(best.get(method, candidate), candidate)
    return {method: parameter for method, (_, parameter) in best.items()}


def _crossover(rows: list[Row]) -> dict[str, Any]:
    parameters = chosen(rows)
    found: dict[str, Any] = {method: parameters[method] for method in ("K-SQS", "C-SQS")}
    for (heat,), some in sorted(grouped(rows, "temperature").items()):
        at: dict[str, Any] = {}
        for metric in METRICS[:2]:
            means = {
                method: mean(having(some, method=method, parameter=parameters[method]), metric)
                for method in ("K-SQS", "C-SQS")
            }
            at[f"lower {metric}"] = min(means, key=means.__getitem__)
            at |= {f"{method} {metric}": round(value, 4) for method, value in means.items()}
        found[str(heat)] = at
    return found


def plot(rows: list[Row], path: Path) -> None:
    """Columns: both methods at their best, K-SQS, C-SQS. Rows: latency, resampling rate."""
    best = chosen(rows)
    columns = {
        "best K and β (Fig. 2, 6)": {(CLOUD, ""): charts.Look(charts.GREY, "o", ":", label=CLOUD)}
        | {
            (method, best[method]): replace(look, label=f"{method}, {best[method]}")
            for method, look in charts.looks(("K-SQS", "C-SQS")).items()
        },
        "K-SQS over K (Fig. 4)": _looks(rows, "K-SQS"),
        "C-SQS over β (Fig. 4, 5)": _looks(rows, "C-SQS") | _looks(rows, "C-SQS, η = 0"),
    }
    named = [row | {"setting": (row["method"], row["parameter"])} for row in rows]
    with charts.picture(path, rows=2, columns=3, height_inches=6.4, sharex=True, sharey="row") as (
        _,
        axes,
    ):
        for metric, row_axes in zip(METRICS, axes, strict=False):
            found = averages(named, metric, "setting", "temperature")
            for axis, settings in zip(row_axes, columns.values(), strict=True):
                charts.lines(axis, found, settings, apart=0.012)
        for (title, _), (upper, lower) in zip(columns.items(), axes.T, strict=True):
            upper.set(title=title, ylim=(0, None))
            lower.set(xlabel="temperature", ylim=(0, 1.05))
            named_above = upper.get_legend_handles_labels()  # latency has the cloud alone, too
            lower.legend(
                *named_above, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2
            )
        axes[0, 0].set_ylabel("latency (s per answer)")
        axes[1, 0].set_ylabel("resampling rate")


def _looks(rows: list[Row], method: str) -> dict[tuple[str, str], charts.Look]:
    """Of all parameters of one method; hollow and dashed where the threshold does not adapt."""
    fixed = method.endswith("η = 0")
    return {
        (method, parameter): replace(
            look,
            line="--" if fixed else "-",
            filled=not fixed,
            label=parameter + ", η = 0" * fixed,
        )
        for parameter, look in charts.looks(
            distinct(having(rows, method=method), "parameter")
        ).items()
    }
