"""What every experiment has in common: its settings, its files, and drawing it again from them.

An experiment is a module (see `Experiment`). It measures rows; its picture and its summary come
from the rows alone, so that the CSV is all that has to be kept.
"""

import csv
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from dragonrt.errors import DragonError
from dragonrt.node.endpoints import Address
from scripts.bench.harness import environment
from scripts.papers.intervals import Row, grouped

Clock = Literal["virtual", "real"]
"""Simulated models in virtual time, or real models (and real processes) in real time."""

Progress = Callable[[int, int], None]
"""Called with what is done and what there is to do."""


class ExperimentError(DragonError):
    """An experiment that cannot run as asked, or results that cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How an experiment runs.

    `quick` is a version of less than a minute, `real` the real clock, `repeats` how often each
    point is measured where chance or the machine varies it. What a run writes beside its rows
    goes into the directory `results`, which exists. `corpus` is the text that language modelling
    is measured on, or that generated texts go on from, if not the one there is. `model` is what
    both sides run, `draft` and `target` are the pair where one model drafts blocks for another,
    `workers` those of federated inference. `cloud` is where one already runs, if the experiment is
    not to start its own.
    """

    quick: bool
    real: bool
    repeats: int
    seed: int
    results: Path
    corpus: Path | None = None
    model: str = "dragon-small"
    draft: str = "dragon-draft"
    target: str = "dragon-small"
    workers: tuple[str, ...] = ("dragon-small", "dragon-opt")
    cloud: Address | None = None


class Experiment(Protocol):
    """A module of an experiment."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module's constant
        """What it is called on the command line."""

    @property
    def SUMMARY(self) -> str:  # noqa: N802 - a module's constant
        """One line: what it measures, and which figure of which paper that is."""

    @property
    def CLOCKS(self) -> tuple[Clock, ...]:  # noqa: N802 - a module's constant
        """The clocks it can run on, its default first."""

    def run(self, settings: Settings, progress: Progress) -> list[Row]:
        """Measure: one row per sample, every row with the same columns."""

    def plot(self, rows: list[Row], path: Path) -> None:
        """Draw the rows into a PNG file at `path`."""

    def summarise(self, rows: list[Row]) -> dict[str, Any]:
        """The headline numbers, as what JSON can hold."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where the results of one experiment are: DIR/NAME/NAME.csv, .json and .png."""

    directory: Path
    name: str

    @property
    def rows(self) -> Path:
        return self.directory / f"{self.name}.csv"

    @property
    def record(self) -> Path:
        return self.directory / f"{self.name}.json"

    @property
    def pictures(self) -> list[Path]:
        """Those that were drawn: one, or one of each model and kind of text."""
        return sorted(self.directory.glob(f"{self.name}*.png"))

    def pictured(self, part: str | None) -> Path:
        """Where the picture of all rows goes, or that of one model or kind of text."""
        told = "" if part is None else "-" + re.sub(r"[^\w.]+", "-", part).strip("-")
        return self.directory / f"{self.name}{told}.png"


def files(experiment: Experiment, results: Path) -> Files:
    """The files of an experiment below `results`, their directory made."""
    directory = results / experiment.NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"cannot make {directory}: {error.strerror}") from None
    return Files(directory, experiment.NAME)


def clock(experiment: Experiment, real: bool | None) -> Clock:
    """The clock asked for, or the experiment's own choice (None); refuses one it cannot run on."""
    if real is None:
        return experiment.CLOCKS[0]
    asked: Clock = "real" if real else "virtual"
    if asked not in experiment.CLOCKS:
        raise ExperimentError(
            f"{experiment.NAME} runs on the {experiment.CLOCKS[0]} clock only: leave --{asked} out"
        )
    return asked


def run_experiment(
    experiment: Experiment, settings: Settings, progress: Progress, models: Sequence[str] = ()
) -> Files:
    """Measure, then write rows, record and picture. `settings.results` is the experiment's own.

    With `models` each of them is the settings' model in turn, and rows say which one it was. The
    record has the command, versions, hardware, seed and settings, and the summary.
    """
    where = Files(settings.results, experiment.NAME)
    start_s = time.monotonic()
    rows: list[Row] = [] if models else experiment.run(settings, progress)
    for number, model in enumerate(models):

        def reached(done: int, total: int, before: int = number) -> None:
            progress(before * total + done, len(models) * total)

        own = experiment.run(replace(settings, model=model), reached)
        rows += [{"model": model} | row for row in own]
    seconds = time.monotonic() - start_s
    write_rows(rows, where.rows)

    record = {
        "experiment": experiment.NAME,
        **environment(),
        "clock": "real" if settings.real else "virtual",
        "quick": settings.quick,
        "repeats": settings.repeats,
        "seed": settings.seed,
        "seconds": round(seconds, 3),
        "rows": len(rows),
        "summary": _summary(experiment, rows),
    }
    text = json.dumps(record, ensure_ascii=False, indent=2) + "\n"
    where.record.write_text(text, encoding="utf-8")
    _draw(experiment, rows, where)
    return where


def by_model_and_kind(rows: list[Row]) -> dict[str | None, list[Row]]:
    """Rows of each model, and of answers and prose: no figure mixes them. None where all are alike.

    Events have these columns too, some of them empty: those belong together.
    """
    values = {name: {row.get(name) for row in rows} for name in ("model", "kind")}
    columns = [name for name, found in values.items() if len(found) > 1 and None not in found]
    if not columns:
        return {None: rows}
    return {", ".join(key): some for key, some in grouped(rows, *columns).items()}


def _summary(experiment: Experiment, rows: list[Row]) -> dict[str, Any]:
    found = {part: experiment.summarise(some) for part, some in by_model_and_kind(rows).items()}
    return found.get(None) or {str(part): each for part, each in found.items()}


def _draw(experiment: Experiment, rows: list[Row], where: Files) -> None:
    for earlier in where.pictures:
        earlier.unlink()
    for part, some in by_model_and_kind(rows).items():
        experiment.plot(some, where.pictured(part))


def draw_again(experiment: Experiment, where: Files) -> None:
    """The picture again, and the record's summary, from the CSV alone."""
    rows = read_rows(where.rows)
    _draw(experiment, rows, where)
    try:
        record = json.loads(where.record.read_text(encoding="utf-8"))
        record["summary"] = _summary(experiment, rows)
    except (OSError, ValueError, TypeError):
        raise ExperimentError(
            f"cannot read {where.record}: run {experiment.NAME} without --replot"
        ) from None
    text = json.dumps(record, ensure_ascii=False, indent=2) + "\n"
    where.record.write_text(text, encoding="utf-8")


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """A CSV with one header line; None is an empty cell, other values are as JSON has them.

    Every cell keeps its type, also in a column of several types as that of a trace's events:
    tables of a library give a column one. Text is bare where it reads as nothing else. Raises
    ExperimentError where rows are missing or differ in their columns.
    """
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
    """The rows of a CSV that `write_rows` wrote, values of the kinds they had."""
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
