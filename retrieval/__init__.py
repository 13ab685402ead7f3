"""Cut documents into chunks, embed them, and find the chunks that may answer a question.

The package needs nothing else of dragonrt. Names are imported at first use, to start fast.

    Index.update(Path("index"), Path("documents"), embedder := Embedder.load())
    hits = Retriever(Index.open(Path("index")), embedder).retrieve("When does the ferry leave?", 2)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .embedding import Embedder as Embedder
    from .index import Hit as Hit
    from .index import Index as Index
    from .index import Progress as Progress
    from .index import Report as Report
    from .index import Retriever as Retriever
    from .kv_store import KvStore as KvStore
    from .search import Search as Search
    from .store import Chunk as Chunk

_MODULES = {
    **dict.fromkeys(("Hit", "Index", "Progress", "Report", "Retriever"), "index"),
    "Chunk": "store",
    "Embedder": "embedding",
    "KvStore": "kv_store",
    "Search": "search",
}


def __getattr__(name: str) -> object:
    if module := _MODULES.get(name):
        return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class RetrievalError(Exception):
    """Base error: the index, a model or a request cannot be used; the text says what to do."""


class DocumentError(RetrievalError):
    """A file cannot be read. An update of the index skips the file and indexes all others."""
