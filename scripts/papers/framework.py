"""The harness of all figures: settings, cases, result files, and drawing again from the rows.

A figure is a module (see `Experiment`) that measures rows. Its picture and its summary are made
from the rows alone, so only the CSV has to be kept.
"""

import csv
import json
import multiprocessing
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from dragonrt.errors import DragonError
from dragonrt.node.connections.addresses import Address
from scripts.lab.harness import environment
from scripts.lab.intervals import Row, grouped

T = TypeVar("T")
Case = TypeVar("Case")

Clock = Literal["virtual", "real"]
"""Virtual time, or real models (and real processes) in real time."""

Progress = Callable[[int, int], None]
"""Called with the number of finished cases and of all cases."""

TOYS = ("dragon-small", "dragon-draft")
"""The bundled models that run where no real one is installed; workers run both."""


class ExperimentError(DragonError):
    """A figure that cannot be measured as asked, or results that cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a figure is measured.

    `repeats` is the number of measurements of each point that varies by chance or machine. What a
    run writes beside its rows goes into the existing directory `results`. `models` are those of
    both sides, the target that verifies blocks, or the workers; `draft` drafts for them. `corpora`
    replace the bundled texts. `cloud` is a cloud that already runs.
    """

    quick: bool
    real: bool
    repeats: int
    seed: int
    results: Path
    models: tuple[str, ...] = TOYS[:1]
    draft: str = "dragon-draft"
    corpora: tuple[Path, ...] = ()
    cloud: Address | None = None

    @property
    def model(self) -> str:
        """The only model, or the first."""
        return self.models[0]

    @property
    def pair(self) -> tuple[str, str]:
        """The draft model and the target."""
        return self.draft, self.model

    @property
    def corpus(self) -> Path | None:
        """The only corpus, or None. Raises ExperimentError if there are several."""
        if len(self.corpora) > 1:
            raise ExperimentError("this figure reads one text: give --corpus once")
        return self.corpora[0] if self.corpora else None

    def size(self, full: T, quick: T) -> T:
        """Return the one of both that this run measures."""
        return quick if self.quick else full


class Experiment(Protocol):
    """The module of a figure.

    `tables`, if it has that, makes what `docs/results` shows instead of the whole summary.
    """

    NAME: str
    """Of its files."""
    SUMMARY: str
    """A line for the list of figures."""
    CLOCKS: tuple[Clock, ...]
    """Those that it can run on, its default first."""

    def run(self, settings: Settings, progress: Progress) -> list[Row]:
        """Return one row per sample, every row with the same columns."""

    def plot(self, rows: list[Row], path: Path) -> None:
        """Draw the rows into a PNG file."""

    def summarise(self, rows: list[Row]) -> dict[str, Any]:
        """Return the headline numbers for JSON."""


FEW = 8
"""So many cases are done before another process has started."""


def measure_all(
    measure: Callable[[Case], Iterable[Row]],
    cases: Sequence[Case],
    progress: Progress,
    *,
    processes: bool = False,
) -> list[Row]:
    """Return the rows of every case, in their order.

    With `processes` many cases run on all cores, and `measure` and cases must be picklable. Only
    for virtual time: processes that share cores would disturb real measurements.
    """
    rows: list[Row] = []
    with ExitStack() as stack:
        results: Iterable[Iterable[Row]] = map(measure, cases)
        if processes and len(cases) > FEW:
            spawn = multiprocessing.get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(os.cpu_count(), mp_context=spawn))
            results = pool.map(measure, cases, chunksize=4)
        for done, some in enumerate(results, start=1):
            rows += some
            progress(done, len(cases))
    return rows


@dataclass(frozen=True, slots=True)
class Files:
    """Where the results of one figure are: DIR/NAME/NAME.csv, .json and .png."""

    directory: Path
    name: str

    @property
    def rows(self) -> Path:
        return self.directory / f"{self.name}.csv"

    @property
    def record(self) -> Path:
        """Return the path of the settings and the summary, as JSON."""
        return self.directory / f"{self.name}.json"

    @property
    def pictures(self) -> list[Path]:
        """The pictures that exist: one, or one of each model and kind of text."""
        return sorted(self.directory.glob(f"{self.name}*.png"))

    def pictured(self, part: str = "") -> Path:
        """Return the path of the picture of all rows, or of one model or kind of text."""
        suffix = re.sub(r"[^\w.]+", "-", f"-{part}").rstrip("-")
        return self.directory / f"{self.name}{suffix}.png"


def files(experiment: Experiment, results: Path) -> Files:
    """Return the files of a figure below `results`; make their directory."""
    directory = results / experiment.NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"cannot make {directory}: {error.strerror}") from None
    return Files(directory, experiment.NAME)


def run_experiment(
    experiment: Experiment, settings: Settings, progress: Progress, *, by_model: bool = False
) -> Files:
    """Measure, then write rows, record and pictures into `settings.results`.

    With `by_model` each of the models is measured in turn, and rows have its name. The record has
    the command, versions, hardware, seed, settings and summary.
    """
    where = Files(settings.results, experiment.NAME)
    start_s = time.monotonic()
    rows: list[Row] = [] if by_model else experiment.run(settings, progress)
    for number, model in enumerate(settings.models if by_model else ()):

        def reached(done: int, total: int, before: int = number) -> None:
            progress(before * total + done, len(settings.models) * total)

        own = experiment.run(replace(settings, models=(model,)), reached)
        rows += [{"model": model} | row for row in own]
    seconds = round(time.monotonic() - start_s, 3)
    write_rows(rows, where.rows)
    record = {
        "experiment": experiment.NAME,
        **environment(),
        "clock": "real" if settings.real else "virtual",
        **{name: getattr(settings, name) for name in ("quick", "repeats", "seed")},
        "seconds": seconds,
        "rows": len(rows),
    }
    _show(experiment, rows, where, record)
    return where


def _show(experiment: Experiment, rows: list[Row], where: Files, record: dict[str, Any]) -> None:
    """Draw the pictures, and write the record with the summary.

    Rows of each model and of answers and prose have their own: no figure mixes them. The events of
    a trace have these columns too, some of them empty: those belong together.
    """
    values = {name: {row.get(name) for row in rows} for name in ("model", "kind")}
    columns = [name for name, found in values.items() if len(found) > 1 and None not in found]
    parts = {", ".join(key): some for key, some in grouped(rows, *columns).items()}
    for earlier in where.pictures:
        earlier.unlink()
    for part, some in parts.items():
        experiment.plot(some, where.pictured(part))
    summary = {part: experiment.summarise(some) for part, some in parts.items()}
    if tables := getattr(experiment, "tables", None):
        record = record | {"tables": tables(rows)}
    text = json.dumps(record | {"summary": summary.get("", summary)}, ensure_ascii=False, indent=2)
    where.record.write_text(text + "\n", encoding="utf-8")


def draw_again(experiment: Experiment, where: Files) -> None:
    """Draw the pictures and write the record's summary again, from the CSV alone."""
    rows = read_rows(where.rows)
    try:
        record = dict(json.loads(where.record.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise ExperimentError(
            f"cannot read {where.record}: run {experiment.NAME} without --replot"
        ) from None
    _show(experiment, rows, where, record)


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write a CSV with one header line; None is an empty cell, other values are JSON."""
    if not rows:
        raise ExperimentError("nothing was measured: there are no rows to write")
    for row in rows:
        if row.keys() != rows[0].keys():
            raise ExperimentError(f"a row has other columns than the first: {', '.join(row)}")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        writer.writerows([_cell(row[column]) for column in rows[0]] for row in rows)


def read_rows(path: Path) -> list[Row]:
    """Return the rows that `write_rows` wrote, with the types of their values."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            columns, *lines = csv.reader(file)
        rows = [dict(zip(columns, map(_value, line), strict=True)) for line in lines]
    except OSError:
        raise ExperimentError(f"cannot read {path}: run the experiment first") from None
    except ValueError:
        rows = []
    if not rows:
        raise ExperimentError(f"{path} does not hold the rows of an experiment: run it again")
    return rows


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and value.isprintable() and _value(value) == value:
        return value
    return json.dumps(value, default=lambda number: number.item())  # of NumPy


def _value(cell: str) -> Any:
    if not cell:
        return None
    try:
        return json.loads(cell)
    except ValueError:
        return cell
