"""All figures, in the order in which they are listed. A new one adds its module here."""

from collections.abc import Sequence
from importlib import import_module
from typing import cast

from dragonrt import bundled
from dragonrt.errors import DragonError
from scripts.papers.framework import TOYS, Experiment

MODULES = (
    "dragon.latency",
    "dragon.first_token",
    "dragon.perplexity",
    "dragon.scheduling",
    "dragon.delta_z",
    "dragon.pipeline",
    "dragon.speedup_theory",
    "dragon.acceptance_rates",
    "dragon.gamma_ablation",
    "dragon.wire_bytes",
    "sqs.coding",
    "sqs.bound",
    "qsv.quality",
    "qsv.throughput",
    "qsv.uplink",
    "specfed.top_k_uploads",
    "specfed.throughput",
    "sprinter.roc",
    "sprinter.theory",
    "sprinter.latency",
    "dragon.disclosure",
    "dragon.attacks",
)
EXPERIMENTS = tuple(
    cast(Experiment, import_module(f"scripts.papers.{module}")) for module in MODULES
)

OVER_A_NETWORK = ("latency", "ttft", "pipeline")
"""Those that can use a cloud that already runs, on another host perhaps; others ask none."""

BY_MODEL = ("latency", "ttft", "perplexity", "scheduling")
"""Those that DRAGON shows of two models (Fig. 5-8): each model has its rows and its picture."""

FEDERATED = ("specfed-uploads", "specfed-throughput")
"""Those whose models are the workers of one answer."""
OF_SEVERAL = (*BY_MODEL, *FEDERATED, "wire", "sprinter-latency")


def models_of(chosen: Experiment, asked: Sequence[str]) -> tuple[str, ...]:
    """Return the models of a figure: those asked for, else SmolLM2 if it is installed, or toys.

    Workers are two: SmolLM2 with its adapter and without, or both toys. Raises DragonError if
    several are asked for and the figure has one.
    """
    several, name = chosen.NAME in OF_SEVERAL, chosen.NAME
    if len(asked) > 1 and not several:
        raise DragonError(f"{name} has one model, and several are for {', '.join(OF_SEVERAL)}")
    if asked:
        return tuple(asked) if name in FEDERATED else tuple(dict.fromkeys(asked))
    if file := bundled.smollm2_file():
        return (bundled.SMOLLM2, str(file)) if name in FEDERATED else (bundled.SMOLLM2,)
    return TOYS if name in FEDERATED else TOYS[:1]


def draft_of(models: Sequence[str]) -> str:
    """Return what drafts for these models unless told: SmolLM2's draft for it, else a toy."""
    return bundled.SMOLLM2_DRAFT if bundled.SMOLLM2 in models else "dragon-draft"


def experiment(name: str) -> Experiment:
    """Return the figure of that name; DragonError lists the names there are."""
    found = {each.NAME: each for each in EXPERIMENTS}
    if name not in found:
        raise DragonError(f"there is no experiment {name!r}; there are {', '.join(found)}")
    return found[name]
