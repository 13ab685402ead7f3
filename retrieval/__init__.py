"""Documents to chunks, chunks to vectors, questions to the chunks that may answer them.

Usable alone: it knows nothing of the models that read what it finds. A name is imported when it is
used, so that the process that reads documents loads no more than it needs.

    Index.update(Path("index"), Path("documents"), embedder := Embedder.load())
    hits = Retriever(Index.open(Path("index")), embedder).retrieve("When does the ferry leave?", 2)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .documents import SUFFIXES, Parser
    from .embedding import Embedder
    from .failures import DocumentError, MissingKvError, RetrievalError
    from .index import Hit, Index, Progress, Report
    from .ingestion import content_hash, index_name
    from .kv_store import KvStore
    from .questions import in_context
    from .retriever import Reranker, Retriever
    from .store import Chunk, Manifest, Place, Search
else:
    _NAMES = {
        "documents": ("SUFFIXES", "Parser"),
        "embedding": ("Embedder",),
        "failures": ("DocumentError", "MissingKvError", "RetrievalError"),
        "index": ("Hit", "Index", "Progress", "Report"),
        "ingestion": ("content_hash", "index_name"),
        "kv_store": ("KvStore",),
        "questions": ("in_context",),
        "retriever": ("Reranker", "Retriever"),
        "store": ("Chunk", "Manifest", "Place", "Search"),
    }

    def __getattr__(name: str) -> object:
        for module, names in _NAMES.items():
            if name in names:
                return getattr(import_module(f".{module}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "SUFFIXES",
    "Chunk",
    "DocumentError",
    "Embedder",
    "Hit",
    "Index",
    "KvStore",
    "Manifest",
    "MissingKvError",
    "Parser",
    "Place",
    "Progress",
    "Report",
    "Reranker",
    "RetrievalError",
    "Retriever",
    "Search",
    "content_hash",
    "in_context",
    "index_name",
]
