"""What a user sees while a model and its documents are loaded."""

from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dragonrt.cli.console import messages

if TYPE_CHECKING:
    from dragonrt.language.model import LanguageModel
    from dragonrt.runtime.library import Library
    from dragonrt.runtime.process import SideSettings
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


def load(settings: "SideSettings") -> "tuple[LanguageModel, Library | None]":
    """Load a side's model and bring its index up to date; prints what that did."""
    from dragonrt.language.model import LanguageModel
    from dragonrt.runtime.process import open_library

    with messages.status("loading the model"):
        model = LanguageModel.load(settings.model, settings.device, settings.dtype)
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
        messages.print(_index_line(report), markup=False, soft_wrap=True)
        for name, reason in report.skipped:
            line = f"skipped {name}: {reason}"
            messages.print(line, style="yellow", markup=False, soft_wrap=True)
    return model, library


def _index_line(report: "Report") -> str:
    files = report.added + report.changed + report.unchanged
    return (
        f"index: {report.chunks} chunks of {files} files ({report.added} new, {report.changed} "
        f"changed, {report.deleted} deleted, {len(report.skipped)} skipped; "
        f"{report.embedded} embedded, {report.prefilled} prefilled)"
    ) + (f"; {report.deferred} are prefilled when needed: see --kv-cache" * (report.deferred > 0))
