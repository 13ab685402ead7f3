"""`specfed-acceptance`: how far top-K uploads move the acceptance of drafts (SPECFED Fig. 3)."""

from pathlib import Path
from typing import Any

from dragonrt.experiments import top_k_uploads
from dragonrt.experiments.framework import Clock, Progress, Settings
from dragonrt.experiments.statistics import Row

NAME = "specfed-acceptance"
SUMMARY = "Acceptance change by top-K uploads over K and temperature (SPECFED Fig. 3; 3 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per temperature, position, K and reconstruction."""
    rows = top_k_uploads.measure(settings, progress)
    return [{key: row[key] for key in row if key != "bias"} for row in rows]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Mean changes beside the bound of Theorem 3, and whether it holds everywhere."""
    return top_k_uploads.summarise(rows, "acceptance_change")


def plot(rows: list[Row], path: Path) -> None:
    """The mean change over K, a panel per temperature."""
    top_k_uploads.draw(rows, "acceptance_change", "change of acceptance, mean", path)
