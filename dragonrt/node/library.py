"""The documents of one side: their index, and the KV that the side's model made of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from dragonrt.backends.model import LanguageModel
from dragonrt.backends.torch_.document import DocumentKV
from dragonrt.side import KvType
from retrieval import (
    Chunk,
    Embedder,
    Hit,
    KvStore,
    MissingKvError,
    Reranker,
    RetrievalError,
    Retriever,
)

PROMPT, BYTES = 64, 4
"""Tokens that a prompt may put around a text, and bytes of a character, each at most."""


@dataclass(slots=True)
class Library:
    """What a side retrieves from: `kv` holds the stored KV of the chunks in `retriever`'s index.

    `newest` opens the index as it is by then; to retrieve from it, make it the `retriever`. It is
    `incomplete` as long as documents are still to be indexed; of the first ones so many were
    `skipped`. `on_notice` hears, in any thread, of
    what a person should know; each thing once.
    """

    retriever: Retriever
    embedder: Embedder
    kv: KvStore
    newest: Callable[[], Retriever]
    reranker: Reranker | None = None
    kv_type: KvType = "model"
    incomplete: bool = False
    skipped: int = 0
    on_notice: Callable[[str], None] = lambda text: None
    _noticed: set[str] = field(default_factory=set)

    def find(self, question: str, k: int, floor: float | None = None) -> list[Hit]:
        """The `k` most relevant chunks with their scores, none of a cosine below `floor`."""
        return self.retriever.retrieve(question, k, floor)

    def score(self, text: str, chunks: Sequence[Chunk]) -> list[float]:
        """The relevance of given chunks to a text: the re-ranker's score, else the cosine."""
        texts = [chunk.text for chunk in chunks]
        if self.reranker is not None:
            return [float(score) for score in self.reranker.score(text, texts)]
        question = self.embedder.encode_question(text)
        return [float(cosine) for cosine in self.embedder.encode(texts) @ question]

    def tokens(self, model: LanguageModel, chunk: Chunk) -> list[int]:
        """A chunk as `model` reads it: its first tokens, with a notice, if it is longer than fits.

        Half of the context is for what comes after it.
        """
        tokens = model.encode(model.prompt.document_text(chunk.title, chunk.text))
        most = model.context_length // 2
        if len(tokens) > most:
            self.notice(
                f"{chunk.source} has pieces of more than {most} tokens, of which {model.name} does "
                "not read the rest: index it with fewer --chunk-words"
            )
        return tokens[:most]

    def check(self, model: LanguageModel) -> None:
        """Give notice of the files with pieces that are longer than `model` reads."""
        least = max(0, model.context_length // 2 - PROMPT) // BYTES
        for chunk in self.retriever.index.longer(least):
            self.tokens(model, chunk)

    def document_kv(self, model: LanguageModel, chunk: Chunk) -> DocumentKV:
        """The stored KV of a chunk; computed now, and stored if possible, where it is missing."""
        stored = self.stored_kv(chunk)
        if stored is not None:
            return stored
        return self.store_kv(chunk, model.document_kv(self.tokens(model, chunk)))

    def stored_kv(self, chunk: Chunk) -> DocumentKV | None:
        """The KV of a chunk, if it is stored."""
        try:
            return DocumentKV.from_arrays(self.kv.read(chunk.digest))
        except MissingKvError:
            return None

    def store_kv(self, chunk: Chunk, made: DocumentKV) -> DocumentKV:
        """Store the KV of a chunk if possible; the same as it would be read again."""
        arrays = made.to_arrays(self.kv_type)
        self.written(chunk, arrays)
        return DocumentKV.from_arrays(arrays)

    def written(self, chunk: Chunk, arrays: Mapping[str, NDArray[Any]]) -> int:
        """Store arrays of KV; the bytes they take, 0 with a notice where that is not possible.

        The answer does not depend on it.
        """
        try:
            return self.kv.write(chunk.digest, arrays)
        except RetrievalError as error:
            self.notice(f"{error}: KV is computed when a question needs it")
            return 0

    def notice(self, text: str) -> None:
        """Say something, unless it was said before."""
        if text not in self._noticed:
            self._noticed.add(text)
            self.on_notice(text)


class MissingKv:
    """The chunks of a library's newest snapshot whose KV is not stored, one after another.

    There are none any more when the disk is full or has what the limit allows: a notice says so.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._index = library.retriever.index
        self._room, self._last = library.kv.room(), 0
        stored = library.kv.stored()
        numbers = (number for digest, number in self._index.ids().items() if digest not in stored)
        self._numbers = list(numbers)[::-1]

    def __len__(self) -> int:
        return len(self._numbers)

    def next(self) -> Chunk | None:
        """The next chunk that lacks its KV."""
        if self._numbers and self._room <= self._last:
            self._library.notice(
                "stored KV has reached --kv-cache: the rest is computed when a question needs it"
            )
            self._numbers = []
        while self._numbers:
            chunk = self._index.chunk(self._numbers.pop())
            if not self._library.kv.has(chunk.digest):  # a question needed it in the meantime
                return chunk
        return None

    def store(self, chunk: Chunk, made: DocumentKV) -> None:
        """Store what was computed of a chunk."""
        self._last = self._library.written(chunk, made.to_arrays(self._library.kv_type))
        self._room -= self._last
        if not self._last:
            self._numbers = []
