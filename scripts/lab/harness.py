"""What all benchmarks share: rows of results become tables and a JSON record."""

import inspect
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any, ParamSpec

from rich.table import Table

from dragonrt import __version__
from dragonrt.cli.console import messages, output
from dragonrt.errors import DragonError
from scripts.lab.intervals import Row, estimate

P = ParamSpec("P")

RESULTS = Path("results")
"""Records are `bench/NAME.json` below it, where the command is called."""

status = messages.status("")


def progress(text: str) -> None:
    """Show `text` on stderr while a benchmark runs, in place of the text before."""
    status.update(text)


def benchmark(
    *tables: Mapping[str, str], note: str
) -> Callable[[Callable[P, Iterator[Row]]], Callable[P, None]]:
    """Return a decorator for functions that yield rows: a call prints tables and writes a record.

    A table maps headings to formats of a row's values, and shows the rows that have all of these.
    The last line of the output is the record as JSON.
    """

    def decorate(measure: Callable[P, Iterator[Row]]) -> Callable[P, None]:
        @wraps(measure)
        def command(*arguments: P.args, **options: P.kwargs) -> None:
            bound = inspect.signature(measure).bind(*arguments, **options)
            bound.apply_defaults()
            rows: list[Row] = []
            with status:
                for row in measure(*arguments, **options):
                    rows.append(row)
                    progress(f"{len(rows)} rows measured")
            write(record(measure.__name__, rows, tables, note, bound.arguments))

        return command

    return decorate


def measured(command: Callable[..., None], **options: Any) -> list[Row]:
    """Return the rows of a function that `benchmark` decorated, without printing or writing."""
    return list(inspect.unwrap(command)(**options))


def series(samples: Sequence[float]) -> dict[str, Any]:
    """Return the median of repeated measurements, its 95 % interval and all samples, for JSON."""
    return estimate(samples).to_json() | {"samples": [round(sample, 4) for sample in samples]}


def interval(name: str, value: str = "mean", digits: int = 2) -> str:
    """Return the format of a table's cell: column `name`'s statistic `value` and its interval."""
    of = f"{{{name}[%s]:.{digits}f}}"
    return f"{of % value} ({of % 'low'}-{of % 'high'})"


def record(
    name: str,
    rows: Sequence[Row],
    tables: Sequence[Mapping[str, str]],
    note: str,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a benchmark's record: environment, options, tables as text, and all rows."""
    shown = [{"headings": list(table), "rows": list(_cells(table, rows))} for table in tables]
    return {
        "benchmark": name,
        **environment(),
        "seed": options.get("seed"),
        "options": {name: str(value) for name, value in options.items()},
        "note": note,
        "tables": [table for table in shown if table["rows"]],
        "results": list(rows),
    }


def write(made: Mapping[str, Any]) -> None:
    """Print a record, tables first, and write it to `bench/NAME.json` in RESULTS."""
    for each in made["tables"]:
        gap = 2 if len(each["headings"]) < 10 else 1
        table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
        for number, heading in enumerate(each["headings"]):
            table.add_column(heading, justify="right" if number else "left", no_wrap=True)
        for cells in each["rows"]:
            table.add_row(*cells)
        output.print(table, end="\n\n")
    output.print(made["note"], style="dim", highlight=False, markup=False)
    line = json.dumps(made, ensure_ascii=False, default=str)
    path = RESULTS / "bench" / f"{made['benchmark']}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line + "\n", encoding="utf-8")
    except OSError as error:
        raise DragonError(f"cannot write {path}: {error.strerror}") from None
    finally:
        output.print(line, markup=False, highlight=False, soft_wrap=True)


def environment() -> dict[str, Any]:
    """Return machine, versions, date and command of this process, for a record."""
    return {
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "threads": os.environ.get("OMP_NUM_THREADS"),
        },
        "versions": {
            "dragonrt": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "transformers", "numpy")},
        },
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": " ".join([f"scripts/{Path(sys.argv[0]).parent.name}/run", *sys.argv[1:]]),
    }


def _cells(table: Mapping[str, str], rows: Sequence[Row]) -> Iterator[list[str]]:
    for row in rows:
        try:
            yield [_cell(each, row) for each in table.values()]
        except KeyError:
            continue


def _cell(text: str, row: Row) -> str:
    try:
        return text.format_map(row)
    except TypeError:  # None was measured
        return "-"


def _processor() -> str:
    """Return the processor's own name where the system tells it (Linux)."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
