"""Putting one process together: model, documents, threads, trace."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import platformdirs

from dragonrt import bundled
from dragonrt.errors import DragonError
from dragonrt.language.kv_pool import KvPool, usual_limit
from dragonrt.language.model import LanguageModel
from dragonrt.language.prompt import PromptTemplate
from dragonrt.link.units import parse_size
from dragonrt.modes.question import Question
from dragonrt.runtime.engine import Engine
from dragonrt.runtime.host_profile import load_profile
from dragonrt.runtime.library import Library
from dragonrt.runtime.local_side import LocalSide
from dragonrt.runtime.reindexing import OnReport, reindexing
from dragonrt.runtime.side_settings import SideSettings
from dragonrt.runtime.worker import WorkerThread
from dragonrt.traces.file import Recorder, Sink, TraceFile, start
from retrieval import Embedder, Progress, Report, Reranker, RetrievalError
from retrieval.following import Order
from retrieval.store import FORMAT

WARM_UP = Question(prompt="Is everything ready?", max_tokens=1)
"""A first question before the first question, so that no user waits for lazy loading."""


def default_index(documents: tuple[Path, ...]) -> Path:
    """Where the index of documents is kept unless the user says otherwise.

    Sample documents have one for each format: nobody asked for the index of an earlier version,
    so nobody should be asked to make it anew.
    """
    data = Path(platformdirs.user_data_dir("dragonrt"))
    samples = (bundled.documents("device").parent, data)
    ours = all(any(path.resolve().is_relative_to(at) for at in samples) for path in documents)
    name = f"format-{FORMAT}_" * ours + (
        "+".join(str(path.resolve()) for path in documents)
        .strip("/")
        .replace("/", "_")
        .replace("\\", "_")
        .replace(":", "")
    )
    return data / "indexes" / name


def index_directory(settings: SideSettings) -> Path | None:
    """Where the index of a side is, or its KV alone if a database has the rest."""
    if settings.index is not None:
        return settings.index
    if settings.store is not None:
        # The store's URL may hold a password: no file is named by it.
        return default_index((Path(hashlib.sha256(settings.store.encode()).hexdigest()),))
    return default_index(settings.documents) if settings.documents else None


def load_model(settings: SideSettings) -> LanguageModel:
    """Load the model of a side. Raises DragonError."""
    name = settings.model
    if name == bundled.DEFAULT_MODEL:
        name = bundled.default_model()
    adapter = bundled.adapter_path(name) if settings.adapter is None else Path(settings.adapter)
    return LanguageModel.load(
        name,
        settings.on,
        settings.dtype,
        settings.threads,
        PromptTemplate.read(settings.prompt) if settings.prompt is not None else None,
        None if settings.adapter == "none" else adapter,
    )


def open_library(
    settings: SideSettings,
    model: LanguageModel,
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[Library | None, Report | None]:
    """The library of a side, indexed now if it has documents, and what indexing did.

    Raises DragonError.
    """
    directory = index_directory(settings)
    if directory is None:
        return None, None
    try:
        return Library.open(
            directory,
            settings.documents,
            model,
            Embedder.load(settings.embedder),
            Reranker.load(settings.reranker) if settings.reranker is not None else None,
            on_progress,
            settings.chunk_words,
            settings.rebuild,
            settings.search,
            parse_size(settings.kv_cache),
            settings.store,
            settings.kv_type,
            settings.parser,
        )
    except RetrievalError as error:
        raise DragonError(str(error)) from error


def _kv_limit(settings: SideSettings, model: LanguageModel) -> int:
    if settings.kv_memory is None:
        return usual_limit(model.on)
    return parse_size(settings.kv_memory)


@asynccontextmanager
async def local_side(
    settings: SideSettings,
    model: LanguageModel,
    library: Library | None,
    on_report: OnReport = lambda report: None,
    *listeners: Sink,
) -> AsyncIterator[LocalSide]:
    """The side of this process, its threads running and its trace open, until the context ends.

    `on_report` hears of the updates of an index that is watched, `listeners` of every event.
    """
    async with AsyncExitStack() as stack:
        heads = await stack.enter_async_context(WorkerThread("heads"))
        engine = await stack.enter_async_context(Engine(heads))
        librarian = await stack.enter_async_context(WorkerThread("librarian"))
        clock = asyncio.get_running_loop().time
        sinks = list(listeners)
        if settings.trace is not None:
            trace = TraceFile.open(settings.trace)
            stack.callback(trace.close)
            sinks.append(trace.write)
        recorder = Recorder(clock, settings.side, tuple(sinks))
        recorder.event(0, start(model.name))
        side = LocalSide(
            side=settings.side,
            model=model,
            engine=engine,
            librarian=librarian,
            library=library,
            recorder=recorder,
            profile=load_profile(model.name),
            share_sources=settings.share_sources,
            pool=KvPool(_kv_limit(settings, model)),
        )
        prepared = await side.prepare(WARM_UP, verifies=False)
        prepared.context.close()
        directory = index_directory(settings)
        if settings.watch and library is not None and directory is not None:
            order = Order(
                [str(path) for path in settings.documents],
                str(directory),
                settings.embedder,
                settings.chunk_words,
                settings.store,
                settings.parser,
            )
            await stack.enter_async_context(reindexing(order, library, on_report))
        yield side
