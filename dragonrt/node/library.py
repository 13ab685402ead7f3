"""The documents of one side: their index, and the KV that the model computed of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from dragonrt.backends.backend import Document
from dragonrt.backends.model import LanguageModel
from dragonrt.side import KvType
from retrieval import (
    Chunk,
    Embedder,
    Hit,
    KvStore,
    RetrievalError,
    Retriever,
)

PROMPT, BYTES = 64, 4
"""Tokens that a prompt may put around a text, and bytes of a character, each at most."""


@dataclass(slots=True)
class Library:
    """The documents of a side: `kv` holds what `model` computed of the chunks of `retriever`.

    `newest` opens the index as it is then; assign the result to `retriever` to use it. The library
    is `incomplete` while documents are still to be indexed; `skipped` counts files that could not
    be read. `on_notice` receives each notice for a person once, in any thread.
    """

    model: LanguageModel
    retriever: Retriever
    embedder: Embedder
    kv: KvStore
    newest: Callable[[], Retriever]
    kv_type: KvType = "model"
    incomplete: bool = False
    skipped: int = 0
    on_notice: Callable[[str], None] = lambda text: None
    _noticed: set[str] = field(default_factory=set)

    def find(self, question: str, k: int, floor: float | None = None) -> list[Hit]:
        """Return the `k` most relevant chunks with their scores, none of a cosine below `floor`."""
        return self.retriever.retrieve(question, k, floor)

    def score(self, text: str, chunks: Sequence[Chunk]) -> list[float]:
        """Return the relevance of chunks to a text: their cosines."""
        question = self.embedder.encode_question(text)
        vectors = self.embedder.encode([chunk.text for chunk in chunks])
        return [float(cosine) for cosine in vectors @ question]

    def tokens(self, chunk: Chunk) -> list[int]:
        """Return the tokens of a chunk, cut with a notice at half of the model's context."""
        tokens = self.model.encode(self.model.prompt.document_text(chunk.title, chunk.text))
        most = self.model.context_length // 2
        if len(tokens) > most:
            self.notice(
                f"{chunk.source} has pieces of more than {most} tokens, of which {self.model.name} "
                "does not read the rest: index it with fewer --chunk-words"
            )
        return tokens[:most]

    def check(self) -> None:
        """Give notice of the files with chunks that are longer than the model reads."""
        least = max(0, self.model.context_length // 2 - PROMPT) // BYTES
        for chunk in self.retriever.index.longer(least):
            self.tokens(chunk)

    def document_kv(self, chunk: Chunk) -> Document:
        """Return the KV of a chunk; if it is not stored it is computed, and stored if possible."""
        stored = self.stored_kv(chunk)
        if stored is not None:
            return stored
        return self.store_kv(chunk, self.model.document_kv(self.tokens(chunk)))

    def stored_kv(self, chunk: Chunk) -> Document | None:
        """Return the KV of a chunk, if it is stored."""
        arrays = self.kv.read(chunk.digest)
        return None if arrays is None else self.model.backend.load(arrays)

    def store_kv(self, chunk: Chunk, made: Document) -> Document:
        """Store the KV of a chunk if possible; return it as a later read would."""
        arrays = made.dump(self.kv_type)
        self.write(chunk, arrays)
        return self.model.backend.load(arrays)

    def write(self, chunk: Chunk, arrays: Mapping[str, NDArray[Any]]) -> int:
        """Store arrays of KV; return their bytes, or 0 with a notice where that is not possible."""
        try:
            return self.kv.write(chunk.digest, arrays)
        except RetrievalError as error:
            self.notice(f"{error}: KV is computed when a question needs it")
            return 0

    def notice(self, text: str) -> None:
        """Pass a notice on, unless it was before."""
        if text not in self._noticed:
            self._noticed.add(text)
            self.on_notice(text)


class MissingKv:
    """Iterates over the chunks of a library's newest snapshot whose KV is not stored.

    It ends when the disk is full or the store's limit is reached; a notice says so.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._index = library.retriever.index
        self._room, self._last = library.kv.room(), 0
        stored = library.kv.stored()
        numbers = (
            number for digest, number in self._index.store.ids().items() if digest not in stored
        )
        self._numbers = list(numbers)[::-1]

    def __len__(self) -> int:
        return len(self._numbers)

    def next(self) -> Chunk | None:
        """Return the next chunk that lacks its KV."""
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

    def store(self, chunk: Chunk, made: Document) -> None:
        """Store what was computed of a chunk."""
        self._last = self._library.write(chunk, made.dump(self._library.kv_type))
        self._room -= self._last
        if not self._last:
            self._numbers = []
