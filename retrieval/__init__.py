"""Documents to chunks, chunks to vectors, questions to the chunks that may answer them.

Usable alone: it knows nothing of the models that read what it finds.

    Index.update(Path("index"), Path("documents"), embedder := Embedder.load())
    hits = Retriever(Index.open(Path("index")), embedder).retrieve("When does the ferry leave?", 2)
"""

from .documents import SUFFIXES, Parser
from .embedding import Embedder
from .failures import DocumentError, MissingKvError, RetrievalError
from .index import Hit, Index, Progress, Report
from .ingestion import content_hash, index_name
from .kv_store import KvStore
from .questions import in_context
from .retriever import Reranker, Retriever
from .store import Chunk, Manifest, Place, Search

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
