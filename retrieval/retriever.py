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
    """A sentence-transformers cross-encoder.

    It reads question and text together, slower and better than the cosine of their embeddings.
    """

    def __init__(self, model: Any) -> None:
        """Use `Reranker.load`."""
        self._model = model

    @classmethod
    def load(cls, name: str | Path) -> "Reranker":
        """A cross-encoder with one output, by directory or Hugging Face id.

        Raises:
            RetrievalError: there is no such model, or the hub cannot be reached.
        """
        return cls(loaded("CrossEncoder", model_directory(str(name)), num_labels=1))

    def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """How well each text answers the question, float32 [texts], in (0, 1)."""
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
        """Check that the parts belong together; `search` is how chunks are chosen.

        Raises:
            RetrievalError: the index was made with another embedding model.
        """
        index.require(embedder)
        self.index = index
        self._embedder = embedder
        self._reranker = reranker
        self._search = search
        self.fingerprint = f"{index.fingerprint()} {search} {reranker is not None}"
        """Equal where the same chunks are found for a question."""

    def retrieve(self, question: str, k: int, floor: float | None = None) -> list[Hit]:
        """The `k` most relevant chunks, best first, none of a cosine below `floor`.

        Without a re-ranker a hit's score is the cosine, however it was found; with one, the best
        max(4k, 20) chunks are re-ranked, and its score is the re-ranker's. The floor is of the
        cosine all the same: scores of two re-rankers do not compare.
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
