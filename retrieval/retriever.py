"""From a question to the chunks that may answer it."""

import numpy as np

from .embedding import Embedder
from .index import Hit, Index
from .reranking import Reranker
from .store import Search


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

    def retrieve(self, question: str, k: int) -> list[Hit]:
        """The `k` most relevant chunks, best first.

        Without a re-ranker a hit's score is the cosine, however it was found; with one, the best
        max(4k, 20) chunks are re-ranked, and its score is the re-ranker's.
        """
        if len(self.index) == 0 or k < 1:
            return []
        vector = self._embedder.encode_question(question)
        if self._reranker is None:
            return self.index.search(vector, k, question, self._search)
        hits = self.index.search(vector, max(4 * k, 20), question, self._search)
        scores = self._reranker.score(question, [hit.chunk.text for hit in hits])
        order = np.argsort(-scores, kind="stable")[:k]
        return [Hit(hits[i].chunk, float(scores[i])) for i in order]
