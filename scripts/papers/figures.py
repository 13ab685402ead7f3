"""All experiments, in the order in which they are listed. A new one adds its module here."""

from collections.abc import Sequence

from dragonrt.errors import DragonError
from scripts.papers.dragon import (
    acceptance_rates,
    branch_latency,
    delta_z,
    first_token,
    gamma_ablation,
    perplexity,
    pipeline,
    race_entries,
    scheduling,
    speedup_theory,
    wire_bytes,
)
from scripts.papers.dragon import (
    disclosure as disclosure_figure,
)
from scripts.papers.dragon import (
    latency as latency_figure,
)
from scripts.papers.framework import Experiment
from scripts.papers.qsv import quality as qs_quality
from scripts.papers.qsv import throughput as qs_throughput
from scripts.papers.qsv import uplink
from scripts.papers.specfed import throughput as specfed_throughput
from scripts.papers.specfed import top_k_uploads
from scripts.papers.sprinter import (
    examples as sprinter_examples,
)
from scripts.papers.sprinter import (
    latency as sprinter_latency,
)
from scripts.papers.sprinter import (
    roc as sprinter_roc,
)
from scripts.papers.sprinter import (
    theory as sprinter_theory,
)
from scripts.papers.sqs import bound as sqs_bound
from scripts.papers.sqs import coding as sqs

EXPERIMENTS: tuple[Experiment, ...] = (
    latency_figure,
    first_token,
    perplexity,
    scheduling,
    delta_z,
    pipeline,
    speedup_theory,
    acceptance_rates,
    gamma_ablation,
    wire_bytes,
    race_entries,
    branch_latency,
    sqs,
    sqs_bound,
    qs_quality,
    qs_throughput,
    uplink,
    top_k_uploads.BIAS,
    top_k_uploads.ACCEPTANCE,
    specfed_throughput,
    sprinter_roc,
    sprinter_theory,
    sprinter_latency,
    sprinter_examples,
    disclosure_figure,
)

OVER_A_NETWORK: tuple[Experiment, ...] = (latency_figure, first_token, pipeline)
"""Those that can use a cloud that already runs, on another host perhaps.

The others ask no cloud: they run in virtual time, or read texts in one process.
"""

TWO_MODELS = ("dragon-small", "dragon-opt")
"""Of two families, as DRAGON's Qwen2.5 and OPT are."""

BY_MODEL: tuple[Experiment, ...] = (latency_figure, first_token, perplexity, scheduling)
"""Those that DRAGON shows of two models (Fig. 5-8): each model has its rows and its picture."""


def models_of(chosen: Experiment, asked: Sequence[str], *, one: bool) -> tuple[str, ...]:
    """The models that an experiment of `BY_MODEL` is made with, one after another; else ().

    Without any asked for, the two bundled ones, or the first of them if `one` is enough.
    Raises DragonError where several are asked for and the experiment has one.
    """
    if chosen in BY_MODEL:
        return tuple(dict.fromkeys(asked)) or (TWO_MODELS[:1] if one else TWO_MODELS)
    if len(asked) > 1:
        names = ", ".join(each.NAME for each in BY_MODEL)
        raise DragonError(f"{chosen.NAME} has one model, and several are for {names}")
    return ()


def experiment(name: str) -> Experiment:
    """The experiment of that name; DragonError lists the names there are."""
    for each in EXPERIMENTS:
        if name == each.NAME:
            return each
    names = ", ".join(each.NAME for each in EXPERIMENTS)
    raise DragonError(f"there is no experiment {name!r}; there are {names}")
