"""The documents of one side: their index, and the KV that the side's model made of them."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dragonrt.language.document import DocumentKV
from dragonrt.language.model import LanguageModel
from dragonrt.side import KvType
from retrieval import (
    Chunk,
    Embedder,
    Hit,
    Index,
    KvStore,
    KvWriter,
    MissingKvError,
    Parser,
    Progress,
    Report,
    Reranker,
    RetrievalError,
    Retriever,
    Search,
)


def document_tokens(model: LanguageModel, text: str, title: str) -> list[int]:
    """One document as `model` reads it: its first tokens, if it is longer than fits."""
    tokens = model.encode(model.prompt.document_text(title, text))
    return tokens[: model.context_length // 2]


def compute_kv(model: LanguageModel, text: str, title: str) -> DocumentKV:
    """The KV of one document."""
    return model.document_kv(document_tokens(model, text, title))


def kv_writer(
    model: LanguageModel, directory: Path, limit: float = math.inf, kv_type: KvType = "model"
) -> KvWriter:
    """How KV is computed with `model` and kept beside the index in `directory`, up to a limit."""

    def compute(text: str, title: str) -> dict[str, NDArray[Any]]:
        return compute_kv(model, text, title).to_arrays(kv_type)

    name = model.document_fingerprint.replace(":", "-")
    if kv_type != "model":
        name = f"{name}-{kv_type}"
    return KvWriter(KvStore(directory, name, limit), compute)


@dataclass(slots=True)
class Library:
    """What a side retrieves from: `kv` holds the stored KV of the chunks in `retriever`'s index.

    `newest` opens the index as it is by then; to retrieve from it, make it the `retriever`.
    """

    retriever: Retriever
    embedder: Embedder
    kv: KvStore
    newest: Callable[[], Retriever]
    reranker: Reranker | None = None
    kv_type: KvType = "model"

    @classmethod
    def open(
        cls,
        directory: Path,
        documents: Sequence[Path],
        model: LanguageModel,
        embedder: Embedder,
        reranker: Reranker | None = None,
        progress: Callable[[Progress], None] | None = None,
        words: int = 64,
        rebuild: bool = False,
        search: Search = "hybrid",
        kv_limit: float = math.inf,
        store: str | None = None,
        kv_type: KvType = "model",
        parser: Parser = "pdfium",
    ) -> tuple["Library", Report | None]:
        """The library indexed in `directory`, brought up to date with `documents` if given.

        With the URL of a PostgreSQL `store` that has the index, and `directory` the KV alone. The
        report says what the update did. Raises RetrievalError.
        """
        kv = kv_writer(model, directory, kv_limit, kv_type)
        report = None
        if documents:
            report = Index.update(
                directory,
                documents,
                embedder,
                words=words,
                progress=progress,
                kv=kv,
                rebuild=rebuild,
                url=store,
                parser=parser,
            )

        def newest() -> Retriever:
            return Retriever(Index.open(directory, store), embedder, reranker, search)

        return cls(newest(), embedder, kv.store, newest, reranker, kv_type), report

    def find(self, question: str, k: int) -> list[Hit]:
        """The `k` most relevant chunks with their scores."""
        return self.retriever.retrieve(question, k)

    def score(self, text: str, chunks: Sequence[Chunk]) -> list[float]:
        """The relevance of given chunks to a text: the re-ranker's score, else the cosine."""
        texts = [chunk.text for chunk in chunks]
        if self.reranker is not None:
            return [float(score) for score in self.reranker.score(text, texts)]
        question = self.embedder.encode_question(text)
        return [float(cosine) for cosine in self.embedder.encode(texts) @ question]

    def document_kv(self, model: LanguageModel, chunk: Chunk) -> DocumentKV:
        """The stored KV of a chunk; computed now, and stored if possible, where it is missing."""
        stored = self.stored_kv(chunk)
        if stored is not None:
            return stored
        return self.store_kv(chunk, compute_kv(model, chunk.text, chunk.title))

    def stored_kv(self, chunk: Chunk) -> DocumentKV | None:
        """The KV of a chunk, if it is stored."""
        try:
            return DocumentKV.from_arrays(self.kv.read(chunk.digest))
        except MissingKvError:
            return None

    def store_kv(self, chunk: Chunk, made: DocumentKV) -> DocumentKV:
        """Store the KV of a chunk if possible; the same as it would be read again."""
        arrays = made.to_arrays(self.kv_type)
        with suppress(RetrievalError):  # the answer does not depend on it
            self.kv.write(chunk.digest, arrays)
        return DocumentKV.from_arrays(arrays)
