"""What a user sees while a model and its documents are loaded."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dragonrt.cli.console import messages, say
from dragonrt.errors import DragonError

if TYPE_CHECKING:
    from dragonrt.language.model import LanguageModel
    from dragonrt.runtime.library import Library
    from dragonrt.runtime.side_settings import SideSettings
    from retrieval import Report


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
    from dragonrt.language.model import LanguageModel
    from dragonrt.runtime.process import open_library

    with messages.status("loading the model"):
        model = LanguageModel.load(settings.model, settings.on, settings.dtype, settings.threads)
    with progress_bar("indexing") as bar:
        task = bar.add_task("", total=None)
        library, report = open_library(
            settings,
            model,
            lambda now: bar.update(
                task,
                completed=now.done,
                total=now.total,
                description=f"{now.kv_bytes / 1e9:.2g} GB of KV" if now.kv_bytes else now.file,
            ),
        )
    if report is not None:
        say_report(report)
    return model, library


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
