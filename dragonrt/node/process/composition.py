"""Build the parts of one side's process from its settings: model, index, threads, trace."""

import asyncio
import functools
import hashlib
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from dragonrt import bundled
from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.backends.llama_cpp.model_file import base_file
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prompt import READER, PromptTemplate
from dragonrt.backends.resources import usual_limit
from dragonrt.errors import DragonError
from dragonrt.link.profile import parse_size
from dragonrt.modes.question import Question
from dragonrt.node.model_thread import JobThread, ModelThread
from dragonrt.node.process.host_profile import load_profile
from dragonrt.node.process.library import Library, prefill, prefilling
from dragonrt.node.process.local_side import LocalSide
from dragonrt.node.process.reindexing import IndexingState, OnReport, reindexing
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.traces.events import Noticed
from dragonrt.traces.file import Recorder, Sink, TraceFile, start
from retrieval import (
    Embedder,
    Index,
    KvStore,
    Progress,
    Report,
    RetrievalError,
    Retriever,
    kv_store,
)
from retrieval.following import Order, UpdateOptions
from retrieval.store import FORMAT

WARM_UP = Question(prompt="Is everything ready?", max_tokens=1, documents=0)
"""Run before the first question, so that no user waits for lazy loading."""
LOCKED_S = 5.0  # how long a start waits for another process that indexes


def default_index(documents: tuple[Path, ...]) -> Path:
    """Return the index directory for these documents, in the user's data, if none is configured."""
    data = Path(platformdirs.user_data_dir("dragonrt"))
    samples = (bundled.documents("device").parent, data)
    ours = all(any(path.resolve().is_relative_to(at) for at in samples) for path in documents)
    places = "+".join(str(path.resolve()) for path in documents).strip("/")
    name = places.replace("/", "_").replace("\\", "_").replace(":", "")
    return data / "indexes" / (f"format-{FORMAT}_" * ours + name)


def index_directory(settings: SideSettings) -> Path | None:
    """Return the directory of a side's index and stored KV, None if it has no documents."""
    if settings.index is not None:
        return settings.index
    if settings.store is not None:
        # The store's URL may hold a password, so it is in no file name.
        return default_index((Path(hashlib.sha256(settings.store.encode()).hexdigest()),))
    return default_index(settings.documents) if settings.documents else None


def load_model(settings: SideSettings) -> LanguageModel:
    """Load the language model that the settings name. Raises DragonError."""
    name, prompt = bundled.default_model(settings.model), settings.prompt
    adapter = None if settings.adapter in (None, "none") else Path(settings.adapter)
    template = None if prompt is None else PromptTemplate.read(prompt)
    if name == bundled.SMOLLM2 and settings.adapter is not None:
        name = str(base_file())  # what is bundled has the bundled adapter merged into it
        template = template or (READER if adapter else None)  # scripts/train has that prompt
    return LanguageModel.load(
        name,
        settings.on,
        settings.dtype,
        settings.threads,
        template,
        adapter,
        settings.llama_library,
        settings.engine,
        settings.engine_option,
    )


def update_index(
    settings: SideSettings,
    on_progress: Callable[[Progress], None] = lambda now: None,
    on_portion: Callable[[Report], bool] | None = None,
) -> Report | None:
    """Index changed documents; return a report, None if a side has none. Raises DragonError.

    `on_portion` gets a report when more chunks are searchable; if it returns False, updating ends.
    """
    directory = index_directory(settings)
    if directory is None or not settings.documents:
        return None
    try:
        return Index.update(
            directory,
            settings.documents,
            _embedder(settings),
            progress=on_progress,
            on_portion=on_portion,
            rebuild=settings.rebuild,
            wait_s=LOCKED_S,
            **_options(settings),
        )
    except RetrievalError as error:
        raise DragonError(str(error)) from error


def open_library(settings: SideSettings, model: LanguageModel, left: str = "") -> Library | None:
    """Return a Library to search a side's index, or None without one. `left`: unindexed files."""
    directory = index_directory(settings)
    if directory is None:
        return None
    name = model.document_fingerprint.replace(":", "-")
    kv = KvStore(directory, name, kv_limit(settings, directory))
    try:
        embedder = _embedder(settings)

        def newest() -> Retriever:
            index = Index.open(directory, settings.store)
            return Retriever(index, embedder, settings.search)

        found = newest()
        return Library(model, found, embedder, kv, newest, left)
    except RetrievalError as error:
        raise DragonError(str(error)) from error


def kv_limit(settings: SideSettings, directory: Path) -> float:
    """Return the most bytes of disk that the stored KV of the index in `directory` may use."""
    if settings.kv_cache is None:
        return kv_store.usual_limit(directory)
    return parse_size(settings.kv_cache)


def complete_library(
    settings: SideSettings,
    model: LanguageModel,
    on_progress: Callable[[Progress], None] = lambda now: None,
    *,
    kv: bool = True,
) -> Library | None:
    """Index all documents and, if `kv`, store their KV. Return the Library (None: no documents)."""
    update_index(settings, on_progress)
    library = open_library(settings, model)
    if library is not None and kv:
        prefill(library)
    return library


def _embedder(settings: SideSettings) -> Embedder:
    return _loaded(settings.embedder, settings.threads, settings.llama_library)


_loaded = functools.cache(load_embedder)  # loaded once, for indexing and for questions


@dataclass(frozen=True, slots=True)
class Loaded:
    """The loaded parts of one side, from which `local_side` runs it: settings, model and library.

    `on_report` gets the report or error of each index update; `listeners` get every trace Record.
    """

    settings: SideSettings
    model: LanguageModel
    library: Library | None = None
    on_report: OnReport = lambda report: None
    listeners: tuple[Sink, ...] = ()


@asynccontextmanager
async def local_side(loaded: Loaded) -> AsyncIterator[LocalSide]:
    """Prefill a warm-up question, then run a side in the context: threads, trace and indexing."""
    loop, listeners = asyncio.get_running_loop(), loaded.listeners
    settings, model, library = loaded.settings, loaded.model, loaded.library
    async with AsyncExitStack() as stack:
        postprocessing = await stack.enter_async_context(JobThread("postprocessing"))
        thread = await stack.enter_async_context(ModelThread(model.backend, postprocessing))
        librarian = await stack.enter_async_context(JobThread("librarian"))
        if settings.trace is not None:
            trace = TraceFile(settings.trace)
            stack.callback(trace.close)
            listeners += (trace.write,)
        recorder = Recorder(loop.time, settings.side, listeners)
        recorder.event(0, start(model.name))
        info, memory = model.backend.info, settings.kv_memory
        limit: float = info.kv_memory or usual_limit(info.device_memory)
        if memory is not None:
            limit = min(parse_size(memory), info.kv_memory or math.inf)
        model.backend.pool.limit = limit
        followed = library is not None and (settings.watch or bool(library.left))
        side = LocalSide(
            side=settings.side,
            model=model,
            thread=thread,
            librarian=librarian,
            library=library,
            recorder=recorder,
            profile=load_profile(model.name),
            share_sources=settings.share_sources,
            following=IndexingState() if followed else None,
        )
        prepared = await side.prepare(WARM_UP, verifies=False)
        prepared.context.close()
        if library is not None:

            def notice(found: Noticed) -> None:
                loop.call_soon_threadsafe(loaded.on_report, DragonError(found.text))

            stack.callback(setattr, library, "on_notice", library.on_notice)
            library.on_notice = notice
            await librarian.call(lambda: library.find(WARM_UP.prompt, 1))
            changed = await stack.enter_async_context(prefilling(library, thread))

            def reported(report: Report | DragonError) -> None:
                changed()
                loaded.on_report(report)

            if side.following is not None:
                order = Order(
                    [str(path) for path in settings.documents],
                    str(index_directory(settings)),
                    settings.embedder,
                    settings.watch,
                    _options(settings),
                )
                watching = reindexing(
                    order, library, thread, reported, side.following, settings.llama_library
                )
                await stack.enter_async_context(watching)
        yield side


def _options(settings: SideSettings) -> UpdateOptions:
    return UpdateOptions(
        words=settings.chunk_words,
        url=settings.store,
        exclude=settings.exclude,
        largest=parse_size(settings.largest_file),
    )
