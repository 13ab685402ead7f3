"""`scripts/results`: everything that is measured, one run after another, and the pages of it.

The runs are in `results.toml`, and what their pages show is in `pages.toml`. Each run has its own
directory, where its command is called, its log and its record. A run whose record has the same
command and code is not repeated.
"""

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shlex import split
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from dragonrt.cli.console import output
from dragonrt.cli.options import option
from dragonrt.errors import DragonError
from retrieval.files import read_text
from scripts.bench import pages
from scripts.lab.harness import RESULTS, environment, progress, status

CHECKOUT = Path(__file__).parents[2]
DOCS = CHECKOUT / "docs"
RUNS = Path(__file__).with_suffix(".toml")
CODE = (
    *("dragonrt", "retrieval", "scripts", f":(exclude)scripts/bench/{RUNS.name}"),
    *(":(exclude)scripts/bench/pages.*", ":(exclude)scripts/make_docs.py"),
)
"""What a result is a function of, beside its command, data and machine."""
PATIENCE = 20
"""A run may take so many times as long as usual, and ten minutes."""

PIXELS, PALETTE = 1000, 192
"""Width and colours of a picture that is kept."""

DEMO = ("", "ms per token", "after first", "first, ms", "accepted %", "bytes/token", "same text")
_DEMO_ROW = re.compile(r"^(\S.*?)((?: {2,}\S+){5} +(?:oracle|\d+ of \d+))$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A command that leaves one record, or the demonstration, whose table is read.

    Attributes:
        command: words behind `python -m`.
        minutes: that it takes on two cores.
        quick: whether it is one of the eight minutes.
        timed: whether its numbers depend on how fast the machine is.
        data: the names of files and directories that it reads, below `--data`.
        environment: the directory of the virtual environment that runs it, if not this one.
    """

    name: str
    command: str
    minutes: float
    quick: bool = False
    timed: bool = False
    data: Sequence[str] = ()
    environment: str = ""

    @property
    def python(self) -> Path:
        if not self.environment:
            return Path(sys.executable)
        return CHECKOUT / self.environment / "bin" / "python"


def results(
    *names: Annotated[str, Parameter(help="These runs alone.", show_default=False)],
    quick: Annotated[bool, option("Measure the runs that need eight minutes together.")] = False,
    keep: Annotated[bool, option("Replace the pages and pictures of docs/results.")] = False,
    by_hand: Annotated[
        Path | None, option("Record of a benchmark from another machine, and no run.", kind="FILE")
    ] = None,
    data: Annotated[
        Path | None,
        option(
            "Directory of evaluation texts. A run without its texts is omitted, or fails if it is "
            "named.",
            kind="DIR",
        ),
    ] = None,
    results: Annotated[
        Path, option("Directory of records, from which it resumes.", default="results")
    ] = RESULTS,
) -> None:
    """Measure, or resume measuring; exit with 1 if a number differs from the kept one."""
    some = not names and by_hand is None
    chosen = [run for run in runs() if (run.name in names) or (some and quick <= run.quick)]
    if unknown := set(names) - {run.name for run in chosen}:
        raise DragonError(f"no run {', '.join(unknown)}: see {RUNS.name}")
    texts = {run.name: _texts(run, data) for run in chosen}
    failed, by_name, left = list[str](), dict[str, Mapping[str, Any]](), list[Run]()
    for run in chosen:
        if len(texts[run.name]) < len(run.data):
            why = "--data lacks what it reads"
        elif not run.python.exists():
            why = f"there is no {run.environment}"
        else:
            left.append(run)
            continue
        if names:
            raise DragonError(f"{run.name} cannot be made: {why}")
        output.print(f"{run.name}: left out, {why}", soft_wrap=True)

    def make(run: Run) -> None:
        try:
            by_name[run.name] = made(run, results.resolve(), texts[run.name])
        except DragonError as error:
            failed.append(f"{run.name}: {error}")

    with status:
        for run in left:
            if run.timed:
                make(run)
        # What depends on no clock shares the cores, the longest first.
        beside = sorted((run for run in left if not run.timed), key=lambda run: -run.minutes)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(make, beside))
    records = [by_name[run.name] for run in left if run.name in by_name]
    if by_hand is not None:
        records.append(_by_hand(by_hand))
    for record in records:
        kept, found = pages.kept_tables(record["run"]), pages.tables(record)
        differing = pages.differences(kept, found, timed=record["timed"])
        failed += [f"{record['run']}: {each}" for each in differing]
        if "demo" in record:
            failed += _of_readme(record)
    if keep:
        pages.keep(records)
        pages.write()
        keep_pictures(records, results)
    for line in failed:
        output.print(line, markup=False, soft_wrap=True)
    if failed:
        raise DragonError(f"{len(failed)} differences from docs/results, or failures, above")
    output.print(f"{len(records)} runs: as in docs/results")


def runs() -> list[Run]:
    """Return all runs, in the order in which they are made."""
    return [Run(**each) for each in tomllib.loads(RUNS.read_text("utf-8"))["run"]]


def _texts(run: Run, data: Path | None) -> list[Path]:
    """Return the evaluation texts of a run, as many of them as there are."""
    found = [next(iter(sorted(data.rglob(name))), None) if data else None for name in run.data]
    return [path for path in found if path is not None]


def made(run: Run, results: Path, texts: Sequence[Path] = ()) -> Mapping[str, Any]:
    """Return the record of a run, of now or of before. Raises DragonError if it fails.

    Its command knows evaluation texts by their names alone: no record has a path of the machine.
    """
    place = results / run.name
    file, code = place / f"{run.name}.json", _code()
    wanted = {"call": run.command, "commit": code}
    try:
        record = dict(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError):
        record = {}
    if wanted.items() <= record.items():
        return record
    place.mkdir(parents=True, exist_ok=True)
    for text in texts:
        (link := place / text.name).unlink(missing_ok=True)  # --data may be another folder now
        link.symlink_to(text.resolve())
    start_s = time.monotonic()
    progress(f"{run.name}: {run.minutes:g} minutes")
    printed = _called(run, place)
    found = [json.loads(each.read_text("utf-8")) for each in place.glob("results/*/*.json")]
    if run.command.startswith("dragonrt demo"):
        table = {"headings": DEMO, "rows": demo_rows(printed)}
        own = {"demo": True, "command": "scripts/demo", "seed": 0, "tables": [table]}
        found = [environment() | own]
    if not found:
        raise DragonError(f"left no record: see {place / 'log.txt'}")
    record = dict(found[0])
    drawn = [each.stem for each in sorted(place.glob("results/*/*.png"))]
    # A text that is read from elsewhere is shown nowhere.
    pictures = [each for each in drawn if not (run.data and each.endswith("-texts"))]
    seconds = round(time.monotonic() - start_s)
    record |= wanted | {"run": run.name, "timed": run.timed, "seconds": seconds}
    record["pictures"] = pictures
    file.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return record


def _by_hand(file: Path) -> Mapping[str, Any]:
    """Return the record of a benchmark, which names no run. Raises DragonError for others."""
    try:
        found = dict(json.loads(read_text(file)))
        found |= {"run": found["benchmark"], "seconds": None, "timed": True}
    except (OSError, ValueError, KeyError) as error:
        raise DragonError(f"{file} is no record of a benchmark: {error}") from None
    return found | {"commit": _code(), "pictures": []}


def _called(run: Run, place: Path) -> str:
    """Call the command in its directory; return what it printed."""
    paths = (str(CHECKOUT), os.environ.get("PYTHONPATH", ""))
    log = place / "log.txt"
    try:
        called = subprocess.run(
            [run.python, "-m", *split(run.command)],
            cwd=place,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=60 * (10 + PATIENCE * run.minutes),
        )
    except subprocess.TimeoutExpired as error:
        raise DragonError(f"took more than {error.timeout:.0f} s") from None
    log.write_text(called.stdout + called.stderr, encoding="utf-8")
    if called.returncode:
        raise DragonError(f"ended with {called.returncode}: see {log}")
    return called.stdout


def demo_rows(text: str) -> list[list[str]]:
    """Return the cells of the demonstration's table, wherever it stands in a text."""
    return [[name, *re.split(r" {2,}", cells.strip())] for name, cells in _DEMO_ROW.findall(text)]


def _of_readme(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the README's copy of the demonstration's table has otherwise."""
    copied = demo_rows((CHECKOUT / "README.md").read_text("utf-8"))
    (table,) = record["tables"]
    for each in pages.table_differences((DEMO, copied), (DEMO, table["rows"]), timed=True):
        yield f"README.md: {each}"


def _code() -> str:
    """Return the commit that changed the code last, and a hash of what has changed since."""

    def git(*words: str) -> str:
        ran = subprocess.run(
            ["git", *words, "--", *CODE], cwd=CHECKOUT, capture_output=True, text=True, timeout=60
        )
        return ran.stdout.strip()

    changed = git("diff", "HEAD")
    mark = f"+{sha256(changed.encode()).hexdigest()[:8]}" if changed else ""
    return git("log", "-1", "--format=%h") + mark


def keep_pictures(records: Sequence[Mapping[str, Any]], results: Path) -> None:
    """Write the pictures of the records into docs/figures: fewer colours, in light and in dark."""
    from PIL import Image

    folder = DOCS / "figures"
    folder.mkdir(exist_ok=True)
    for record in records:
        for name in record["pictures"]:
            (file,) = (results / record["run"]).glob(f"results/*/{name}.png")
            with Image.open(file) as drawn:
                size = PIXELS, drawn.height * PIXELS // drawn.width
                light = drawn.convert("RGB").resize(size, Image.Resampling.LANCZOS)
            # White and black change places; the more of its own a colour has, the more it stays.
            pixels = np.asarray(light, np.float32)
            low, high = pixels.min(-1, keepdims=True), pixels.max(-1, keepdims=True)
            swapped = pixels + (1 - (high - low) / 255) * (255 - high - low)
            dark = Image.fromarray((13 + 0.95 * swapped).clip(0, 255).astype(np.uint8))
            for image, suffix in ((light, ""), (dark, "-dark")):
                image.quantize(PALETTE, Image.Quantize.MAXCOVERAGE).save(
                    folder / f"{name}{suffix}.png", optimize=True
                )
