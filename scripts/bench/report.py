"""How a benchmark reports: a table for people, then everything as one line of JSON."""

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from dragonrt import __version__

WIDE = 10
"""Tables of so many columns stand closer, to be whole in a terminal of 80."""


@dataclass(frozen=True, slots=True)
class Series:
    """Repeated measurements of one number, all of them kept. There is at least one."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """What is reported."""
        return median(self.samples)

    def to_json(self) -> dict[str, Any]:
        """The median and every sample."""
        samples = [round(sample, 4) for sample in self.samples]
        return {"median": round(self.median, 4), "samples": samples}


def bench_table(*headings: str) -> Table:
    """An empty table; its first column is text, the others are numbers."""
    gap = 2 if len(headings) < WIDE else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table


def environment() -> dict[str, Any]:
    """The machine and the versions that numbers were measured with."""
    return {
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "threads": torch.get_num_threads(),
        },
        "versions": {
            "dragonrt": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "transformers", "numpy")},
        },
        "command": " ".join([f"scripts/{Path(sys.argv[0]).parent.name}/run", *sys.argv[1:]]),
    }


def print_report(
    output: Console,
    benchmark: str,
    table: Table,
    results: Sequence[dict[str, Any]],
    *,
    seed: int | None = None,
    note: str = "",
) -> None:
    """The table, what to know about it, and as the very last line the JSON object."""
    output.print(table)
    if note:
        output.print(note, style="dim", highlight=False)
    record = {"benchmark": benchmark, **environment(), "seed": seed, "results": list(results)}
    line = json.dumps(record, ensure_ascii=False)
    output.print(line, markup=False, highlight=False, soft_wrap=True)


def _processor() -> str:
    """The processor's own name where the system tells it (Linux), else what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
