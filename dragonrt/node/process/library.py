"""The documents of one side: their index, and the KV that the model computes for them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any
from unicodedata import normalize

from numpy.typing import NDArray

from dragonrt.backends.backend import Document
from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.node.model_thread import ModelThread
from dragonrt.traces.events import Noticed, NoticeKind, OnNotice
from retrieval import Chunk, Embedder, Hit, KvStore, RetrievalError, Retriever

PROMPT, BYTES = 64, 4  # most tokens that a prompt puts around a text, most bytes of a character
RECENT, BESIDE = 16, 8  # of so many chunks asked for last, so many neighbours are read first
LIKELIEST = 64  # so many chunks may replace stored ones if there is no room


@dataclass(slots=True)
class Library:
    """The documents of a side: `retriever` searches their index, `kv` stores the KV of its chunks.

    `newest` opens the latest index; assign its result to `retriever` to search it. `left` describes
    the documents not indexed yet. `skipped` counts unreadable files. `asked` are recently retrieved
    chunks, whose neighbours' KV is computed next. `on_notice` gets each notice once, in any thread.
    """

    model: LanguageModel
    retriever: Retriever
    embedder: Embedder
    kv: KvStore
    newest: Callable[[], Retriever]
    left: str = ""
    skipped: int = 0
    asked: deque[Chunk] = field(default_factory=lambda: deque(maxlen=RECENT))
    on_notice: OnNotice = lambda notice: None
    _noticed: set[Noticed] = field(default_factory=set)

    def find(
        self, question: str, k: int | None, floor: float | None = None, within: str = ""
    ) -> list[Hit]:
        """Return the `k` most relevant chunks with scores (None: the best, and a second if close).

        Chunks below relevance `floor` are dropped. `within` is a file, folder or tag to search in,
        "" for all. Raises RetrievalError if no document is in it.
        """
        within = normalize("NFC", within)
        return self.retriever.retrieve(question, k, floor, within)

    def chunks_of(self, document: str) -> list[Chunk]:
        """Return the chunks of the file `document` in order; RetrievalError if not indexed."""
        document = normalize("NFC", document)
        chunks = self.retriever.index.store.chunks_of(document)
        if not chunks:
            raise RetrievalError(f"there is no document {document!r} in the index")
        return chunks

    def tokens(self, chunk: Chunk) -> list[int]:
        """Return a chunk's tokens, at most half the model's context; a cut causes a notice."""
        tokens = self.model.encode(self.model.prompt.document_text(chunk.title, chunk.text))
        most = self.model.context_length // 2
        if len(tokens) > most:
            self.notice(
                NoticeKind.CUT,
                f"{chunk.source} has chunks of more than {most} tokens, and {self.model.name} does "
                "not read their ends: index it with a smaller chunk-words",
            )
        return tokens[:most]

    def check(self) -> None:
        """Warn `on_notice` of each file with a chunk too long for half of the model's context."""
        least = max(0, self.model.context_length // 2 - PROMPT) // BYTES
        for chunk in self.retriever.index.longer_than(least):
            self.tokens(chunk)

    def document_kv(self, chunk: Chunk) -> Document:
        """Return the KV of a chunk: from the store or, if missing, computed and then stored."""
        stored = self.stored_kv(chunk)
        if stored is not None:
            return stored
        return self.store_kv(chunk, self.model.document_kv(self.tokens(chunk)))

    def stored_kv(self, chunk: Chunk) -> Document | None:
        arrays = self.kv.read(chunk.digest)
        return None if arrays is None else self.model.backend.load(arrays)

    def store_kv(self, chunk: Chunk, made: Document) -> Document:
        self.write(chunk, made.dump())
        return made

    def write(self, chunk: Chunk, arrays: Mapping[str, NDArray[Any]]) -> int:
        """Store a chunk's KV (arrays by name); return the bytes written, 0 if that fails."""
        try:
            return self.kv.write(chunk.digest, arrays)
        except RetrievalError as error:
            self.notice(NoticeKind.STORE, f"{error}: KV is computed when a question needs it")
            return 0

    def notice(self, kind: NoticeKind, text: str) -> None:
        """Pass a notice to `on_notice`, unless the same notice was passed before."""
        notice = Noticed(kind, text)
        if notice not in self._noticed:
            self._noticed.add(notice)
            self.on_notice(notice)


class _MissingKv:
    """The chunks of a library's snapshot whose KV is not stored.

    Neighbours of retrieved chunks come first, then new files; without room, these replace old KV.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._index = library.retriever.index
        self._room, self._last = library.kv.room(), 0
        stored, self._ids = library.kv.stored(), self._index.store.ids_by_digest(likeliest=True)
        numbers = [number for digest, number in self._ids.items() if digest not in stored]
        self._numbers = numbers[::-1]

    def __len__(self) -> int:
        return len(self._numbers)

    def next(self) -> Chunk | None:
        while asked := self._library.asked:
            self._numbers += self._neighbours(asked.popleft())
        written_after = ""
        if self._numbers and self._room <= self._last:
            self._library.notice(
                NoticeKind.STORE,
                "stored KV has reached --kv-cache: the rest is computed when a question needs it",
            )
            del self._numbers[:-LIKELIEST]
            read_s = self._library.kv.oldest()
            written_after = datetime.fromtimestamp(read_s, UTC).isoformat()
        while self._numbers:
            chunk = self._index.chunk(self._numbers.pop())
            # A question may have needed it in the meantime.
            if chunk.dated > written_after and not self._library.kv.has(chunk.digest):
                return chunk
        return None

    def _neighbours(self, asked: Chunk) -> list[int]:
        """Return the ids of the chunks of the same file around one, the nearest last."""
        found = self._index.store.chunks_of(asked.source)
        found.sort(key=lambda each: abs(each.start - asked.start))
        return [self._ids[each.digest] for each in found[BESIDE:0:-1]]

    def store(self, chunk: Chunk, made: Document) -> None:
        self._last = self._library.write(chunk, made.dump())
        self._room -= self._last
        if not self._last:
            self._numbers = []


def prefill(library: Library, progress: Callable[[int, int], None] = lambda done, of: None) -> None:
    """Compute and store missing KV while KvStore has room; `progress` gets (chunks done, all)."""
    missing = _MissingKv(library)
    total = len(missing)
    while (chunk := missing.next()) is not None:
        missing.store(chunk, library.model.document_kv(library.tokens(chunk)))
        progress(total - len(missing), total)


@asynccontextmanager
async def prefilling(library: Library, thread: ModelThread) -> AsyncIterator[Callable[[], None]]:
    """Compute and store missing KV in the background of the async context, while no answer is open.

    An answer interrupts it. Call the yielded function when the index has changed.
    """
    changed = asyncio.Event()
    changed.set()

    async def compute() -> None:
        await asyncio.to_thread(library.check)
        missing = await asyncio.to_thread(_MissingKv, library)
        while (chunk := await asyncio.to_thread(missing.next)) is not None:
            if changed.is_set():
                return
            tokens = library.tokens(chunk)
            made = await thread.read_in_background(partial(library.model.prefill, tokens))
            await asyncio.to_thread(missing.store, chunk, made)

    async def run() -> None:
        while True:
            await changed.wait()
            changed.clear()
            try:
                await compute()
            except (DragonError, RetrievalError) as error:
                text = f"KV is computed when a question needs it: {error}"
                library.notice(NoticeKind.STORE, text)

    task = asyncio.create_task(run(), name="prefilling")
    try:
        yield changed.set
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
