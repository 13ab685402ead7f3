"""From a question to the chunks that may answer it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .embedding import Embedder
from .index import Hit, Index
from .model_files import loaded, model_directory
from .store import Search


class Reranker:
    """A sentence-transformers cross-encoder: slower and better than the cosine of embeddings."""

    def __init__(self, model: Any) -> None:
        """Called by `Reranker.load`."""
        self._model = model

    @classmethod
    def load(cls, name: str | Path) -> "Reranker":
        """Load a cross-encoder with one output, by directory or Hugging Face id.

        Raises RetrievalError if there is no such model, or the hub cannot be reached.
        """
        return cls(loaded("CrossEncoder", model_directory(str(name)), num_labels=1))

    def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return how well each text answers the question, float32 [texts], in (0, 1)."""
        if not texts:
            return np.empty(0, dtype=np.float32)
        pairs = [(question, text) for text in texts]
        scores = np.asarray(self._model.predict(pairs, show_progress_bar=False), dtype=np.float32)
        if type(self._model.activation_fn).__name__ == "Sigmoid":
            return scores
        return np.asarray(1 / (1 + np.exp(-scores)), dtype=np.float32)


class Retriever:
    """An index, the embedding model it was made with, and perhaps a re-ranker."""

    def __init__(
        self,
        index: Index,
        embedder: Embedder,
        reranker: Reranker | None = None,
        search: Search = "hybrid",
    ) -> None:
        """Raise RetrievalError if another embedding model made the index."""
        index.require(embedder)
        self.index = index
        self._embedder = embedder
        self._reranker = reranker
        self._search = search
        self.fingerprint = f"{index.fingerprint()} {search} {reranker is not None}"
        """Equal if the same chunks are found for every question."""

    def retrieve(self, question: str, k: int, floor: float | None = None) -> list[Hit]:
        """Return the `k` most relevant chunks of a cosine from `floor` on, best first.

        A re-ranker orders the best max(4k, 20) chunks, and a hit's score is then its own; else it
        is the cosine. The floor is always of the cosine: scores of two re-rankers do not compare.
        """
        if len(self.index) == 0 or k < 1:
            return []
        vector = self._embedder.encode_question(question)
        most = k if self._reranker is None else max(4 * k, 20)
        hits = self.index.search(vector, most, question, self._search)
        if floor is not None:
            hits = [hit for hit in hits if hit.score >= floor]
        if self._reranker is None:
            return hits
        scores = self._reranker.score(question, [hit.chunk.text for hit in hits])
        order = np.argsort(-scores, kind="stable")[:k]
        return [Hit(hits[i].chunk, float(scores[i])) for i in order]
