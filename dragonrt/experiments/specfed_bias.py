"""`specfed-bias`: how far top-K uploads move the federated target (SPECFED Fig. 2)."""

from pathlib import Path
from typing import Any

from dragonrt.experiments import top_k_uploads
from dragonrt.experiments.framework import Clock, Progress, Settings
from dragonrt.experiments.statistics import Row

NAME = "specfed-bias"
SUMMARY = "Aggregation bias of top-K uploads over K and temperature (SPECFED Fig. 2; 3 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per temperature, position, K and reconstruction."""
    rows = top_k_uploads.measure(settings, progress)
    return [{key: row[key] for key in row if key != "acceptance_change"} for row in rows]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Mean biases beside the bound of Theorem 2, and whether it holds everywhere."""
    return top_k_uploads.summarise(rows, "bias")


def plot(rows: list[Row], path: Path) -> None:
    """The mean bias over K, a panel per temperature."""
    top_k_uploads.draw(rows, "bias", "aggregation bias (TV), mean", path)
