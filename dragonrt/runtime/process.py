"""Putting one process together: model, documents, threads, trace."""

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from dragonrt.bundled import models
from dragonrt.errors import DragonError
from dragonrt.language.checkpoint import Backend, Precision
from dragonrt.language.model import LanguageModel
from dragonrt.runtime.host_profile import load_profile
from dragonrt.runtime.library import Library
from dragonrt.runtime.local_side import LocalSide
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.trace import NoTrace, Trace, TraceFile
from dragonrt.runtime.worker import ModelWorker
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from retrieval import Embedder, Progress, Report, Reranker, RetrievalError, Search
from retrieval.embedding import DEFAULT as DEFAULT_EMBEDDER
from retrieval.kv_store import parse_size

WARM_UP = Plan(seed=0, sampler=Sampler(temperature=0.0), max_tokens=1)
"""A first question before the first question, so that no user waits for lazy loading."""


@dataclass(frozen=True, slots=True)
class SideSettings:
    """What a process answers with.

    `documents` are indexed at the start (only what changed costs anything); without them `index`
    is opened as it is, or the `store` (postgresql://...) that has the index in its place. With none
    of them the side answers without documents. `share_sources` lets the cloud name the titles and
    files it used. `rebuild` makes the index anew.
    """

    side: Side
    model: str = models()[0]
    device: Backend = "auto"
    dtype: Precision = "auto"
    documents: tuple[Path, ...] = ()
    index: Path | None = None
    embedder: str = DEFAULT_EMBEDDER
    reranker: str | None = None
    chunk_words: int = 64
    search: Search = "hybrid"
    kv_cache: str = "20GB"
    store: str | None = None
    trace: Path | None = None
    share_sources: bool = True
    rebuild: bool = False


def default_index(documents: tuple[Path, ...]) -> Path:
    """Where the index of documents is kept unless the user says otherwise."""
    name = (
        "+".join(str(path.resolve()) for path in documents)
        .strip("/")
        .replace("/", "_")
        .replace("\\", "_")
        .replace(":", "")
    )
    return Path(platformdirs.user_data_dir("dragonrt")) / "indexes" / name


def open_library(
    settings: SideSettings,
    model: LanguageModel,
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[Library | None, Report | None]:
    """The library of a side, indexed now if it has documents, and what indexing did.

    Raises DragonError.
    """
    documents, directory = settings.documents, settings.index
    if directory is None and settings.store is not None:
        # The store's URL may hold a password: no file is named by it.
        directory = default_index((Path(hashlib.sha256(settings.store.encode()).hexdigest()),))
    elif directory is None and documents:
        directory = default_index(documents)
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
        )
    except RetrievalError as error:
        raise DragonError(str(error)) from error


@asynccontextmanager
async def local_side(
    settings: SideSettings,
    model: LanguageModel,
    library: Library | None,
) -> AsyncIterator[LocalSide]:
    """The side of this process, its threads running and its trace open, until the context ends."""
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(ModelWorker("model"))
        librarian = await stack.enter_async_context(ModelWorker("librarian"))
        trace: Trace = NoTrace()
        if settings.trace is not None:
            trace = TraceFile.open(settings.trace, settings.side, model.name)
            stack.callback(trace.close)
        side = LocalSide(
            side=settings.side,
            model=model,
            worker=worker,
            librarian=librarian,
            library=library,
            trace=trace,
            profile=load_profile(model.name),
            share_sources=settings.share_sources,
        )
        await side.prepare("Is everything ready?", (), WARM_UP)
        yield side
