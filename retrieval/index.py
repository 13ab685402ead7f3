"""The index of documents: searched by many processes, updated by one."""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import numpy as np

from . import DocumentError, RetrievalError
from .embedding import Embedder, Vectors
from .ingestion import CUT, FoundFiles, look
from .kv_store import prune_kv
from .postgres_store import PostgresStore
from .questions import described, words_of
from .reader import Reader
from .sqlite_store import SqliteStore
from .store import Chunk, IndexedFile, Manifest, Search, Store

_AT_ONCE = 64  # chunks embedded before they are kept
_PORTION, _SHARE = 256, 4
"""New chunks of a portion, or the share of the indexed ones if that is more."""
_CHUNKS_AT_ONCE = 1000  # read by one query
_KINDS = 8  # named of those that are not read
_PORTION_S = 30.0
"""A portion that takes longer ends early: some files take long to read."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk found for a question; `score` is their cosine."""

    chunk: Chunk
    score: float


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` bytes of changed files, the `file` being read, `embedded` chunks."""

    file: str
    done: int
    total: int
    embedded: int


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an update, in numbers of files; `chunks` are now in the index.

    `deleted` includes indexed files that can no longer be read. `skipped` are unreadable files,
    with reasons, `ignored` those of other kinds. `left` files, of `left_bytes`, are still to be
    read, first `next_file`. `unread` are files read now, with counts of what is not in their text.
    """

    added: int
    changed: int
    deleted: int
    unchanged: int
    skipped: tuple[tuple[str, str], ...]
    ignored: tuple[str, ...]
    chunks: int
    embedded: int
    snapshot: int
    left: int = 0
    left_bytes: int = 0
    next_file: str = ""
    unread: tuple[tuple[str, str], ...] = ()

    @property
    def other_kinds(self) -> str:
        """Return the suffixes of the `ignored` files, the most frequent ones first."""
        kinds = Counter(PurePath(name).suffix.lower() or "(none)" for name in self.ignored)
        return " ".join(kind for kind, _ in kinds.most_common(_KINDS))


class Index:
    """A snapshot of an index, open for searching; later updates do not change it."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        """Use `Index.open`."""
        self.store, self.manifest = store, manifest

    @classmethod
    def open(cls, directory: Path, url: str | None = None) -> "Index":
        """Open the newest snapshot in `directory`, or in the database at `url`; RetrievalError."""
        store = PostgresStore(url) if url else SqliteStore(directory)
        return cls(store, store.read())

    def fingerprint(self) -> str:
        """Return a hash of the files' contents and of how they were cut and embedded."""
        manifest, digest = self.manifest, hashlib.sha256()
        digest.update(f"{manifest.fingerprint} {manifest.words}".encode())
        for content in sorted(c + s.partition("/")[2] for c, s in self.store.files().values()):
            digest.update(content.encode())
        return digest.hexdigest()

    def __len__(self) -> int:
        """Return the number of chunks."""
        return self.manifest.chunks

    def files(self) -> dict[str, str]:
        """Return the SHA-256 of every file's content, by the file's name."""
        return {name: content for name, (content, _) in self.store.files().items()}

    def chunk(self, number: int) -> Chunk:
        """Return the chunk with one of the `ids`."""
        return self.store.chunks([number])[number]

    def longer(self, characters: int) -> Iterator[Chunk]:
        """Iterate over the chunks whose text and title have more than `characters` characters."""
        return self._read(self.store.longer(characters))

    def chunks(self) -> Iterator[Chunk]:
        """Iterate over all chunks, in the order of the files."""
        return self._read([*self.store.ids().values()])

    def _read(self, ids: Sequence[int]) -> Iterator[Chunk]:
        """Iterate over chunks: a query of the store brings many."""
        for start in range(0, len(ids), _CHUNKS_AT_ONCE):
            wanted = ids[start : start + _CHUNKS_AT_ONCE]
            found = self.store.chunks(wanted)
            yield from (found[each] for each in wanted)

    def search(
        self,
        vector: Vectors,
        k: int,
        question: str = "",
        by: Search = "dense",
        within: str = "",
    ) -> list[Hit]:
        """Return the `k` chunks (or fewer) that may answer a question, best first.

        "dense" orders by cosine, "words" by the share of the question's words that are in a chunk,
        "hybrid" the best of both by cosine and share. Rare words and names count more. A hit's
        score is always its cosine. `vector` is the question's embedding, float32 [dimension],
        normalised; RetrievalError for another dimension.
        `within` limits the documents to search: a file, a folder/, a #tag, since:2026-01-31, or the
        last before one of the others. RetrievalError if there is none.
        """
        if len(self) == 0 or k < 1:
            return []
        if vector.shape != (self.manifest.dimension,):
            raise RetrievalError(
                f"a vector of shape {vector.shape} cannot be searched in an index of dimension "
                f"{self.manifest.dimension}: use the embedding model {self.manifest.model}"
            )
        vector = np.asarray(vector, dtype=np.float32)
        found = self.store.search(vector, words_of(question), k, by, within)
        return [Hit(chunk, cosine) for cosine, chunk in found]

    @classmethod
    def update(
        cls,
        directory: Path,
        documents: Path | Sequence[Path],
        embedder: Embedder,
        words: int = 64,
        progress: Callable[[Progress], None] = lambda now: None,
        on_portion: Callable[[Report], bool] | None = None,
        rebuild: bool = False,
        url: str | None = None,
        wait_s: float = 0.0,
        exclude: Sequence[str] = (),
        largest: float = math.inf,
    ) -> Report:
        """Make the index in `directory` hold exactly `documents`, a directory or files.

        Only new and changed text is embedded, small files first. An interrupted update leaves the
        index unchanged; the next one reuses the embeddings of the finished files.

        Args:
            words: size of the chunks, see `chunking.chunk`.
            progress: called after every file, and within long ones; its exceptions end the update.
            on_portion: called when about 256 new chunks (or a quarter of the index) have become
                visible, or after half a minute; the update ends if it returns False.
            rebuild: ignore the present index, even one of another model.
            url: of a PostgreSQL database that has the index; `directory` then has only the KV.
            wait_s: how long to wait for another process that updates the index.
            exclude: see `ingestion.FoundFiles`.
            largest: most bytes of a file, and of its text; larger ones are skipped.

        Raises RetrievalError if the documents do not exist, another process updates the index,
        another model made it, or the disk refuses.
        """
        found = FoundFiles(documents, directory, exclude)
        settings = Manifest(found.root, embedder.name, embedder.fingerprint, words)
        writing = (
            PostgresStore.writing(url, rebuild, wait_s)
            if url
            else SqliteStore.writing(directory, rebuild, wait_s)
        )
        with writing as store, Reader(words, largest) as reader:
            old = None if rebuild else store.manifest()
            if old is not None:
                store.require(embedder, old)
            update = _Update(store, old, settings, found, embedder, reader)
            for report in update.run(progress, portions=on_portion is not None):
                if report.left and on_portion is not None and not on_portion(report):
                    return report
            prune_kv(directory, store.ids())
            return report


def near(hits: Sequence[Hit], gap: float) -> list[Hit]:
    """Return the first hit and those whose cosine is at most `gap` below its own."""
    return [hit for hit in hits if hit.score >= hits[0].score - gap]


class Retriever:
    """An index and the embedding model it was made with; see `near` for the `gap`."""

    def __init__(
        self, index: Index, embedder: Embedder, search: Search = "hybrid", gap: float = math.inf
    ) -> None:
        """Raise RetrievalError if another embedding model made the index."""
        index.store.require(embedder, index.manifest)
        self.index, self._embedder, self._search, self._gap = index, embedder, search, gap
        self.fingerprint = f"{index.fingerprint()} {search} {gap}"
        """Equal if the same chunks are found for every question."""

    def retrieve(
        self, question: str, k: int, floor: float | None = None, within: str = ""
    ) -> list[Hit]:
        """Return the `k` most relevant chunks of at least cosine `floor`, best first.

        `within` limits the documents, see `Index.search`.
        """
        if len(self.index) == 0 or k < 1:
            return []
        vector = self._embedder.encode_question(question)
        found = self.index.search(vector, k, question, self._search, within)
        hits = near(found, self._gap)
        return hits if floor is None else [hit for hit in hits if hit.score >= floor]


class _Update:
    """One run of `Index.update`, by the only writer.

    `_kept` are the files that are up to date, `_written` those read in this run, `_changes` what is
    not committed yet.
    """

    def __init__(
        self,
        store: Store,
        old: Manifest | None,
        settings: Manifest,
        found: FoundFiles,
        embedder: Embedder,
        reader: Reader,
    ) -> None:
        self._store, self._manifest, self._settings = store, old, settings
        self._found, self._embedder, self._reader = found, embedder, reader
        self._kept, self._written = set[str](), set[str]()
        self._changes: dict[str, IndexedFile] = {}
        self._stamps: dict[str, str] = {}
        self._skipped, self._unread = found.skipped, list[tuple[str, str]]()
        self._embedded = 0
        self._old = store.files() if old else {}
        self._same_cut = old is not None and old.words == settings.words
        self._waiting = sorted(self._to_read(), reverse=True)
        self._portion = self._embedded, time.monotonic()

    def _to_read(self) -> Iterator[tuple[int, str]]:
        """Yield the sizes and names of files that may have changed; keep or skip the others."""
        for name, path in self._found.files.items():
            try:
                size, stamp, _ = look(path)
            except DocumentError as error:
                self._skipped[name] = str(error)
                continue
            if size > self._reader.largest:
                self._skipped[name] = f"is of {size / 1e6:.1f} MB, more than largest-file allows"
            elif self._same_cut and stamp[0] != "/" and stamp == self._old.get(name, ("", ""))[1]:
                self._kept.add(name)
            else:
                yield size, name

    def run(self, progress: Callable[[Progress], None], *, portions: bool) -> Iterator[Report]:
        """Update the index; yield a report after every portion and at the end."""
        done, total = 0, sum(size for size, _ in self._waiting)
        while self._waiting:
            size, name = self._waiting[-1]
            try:
                for part in self._read(name):
                    progress(Progress(name, done + int(part * size), total, self._embedded))
                    if portions and self._portion_is_full():
                        yield self._committed(last=False)
                self._kept.add(name)
            except DocumentError as error:
                self._skipped[name] = str(error)
            self._waiting.pop()
            done += size
            progress(Progress(name, done, total, self._embedded))
            if portions and self._waiting and self._portion_is_full():
                yield self._committed(last=False)
        yield self._committed(last=True)

    def _read(self, name: str) -> Iterator[float]:
        """Read a file and embed its new text; yield the share that is stored so far."""
        known, before = self._old.get(name, ("", ""))
        size, stamp, date = look(path := self._found.files[name])
        cut_alike = self._same_cut and before.endswith(f"/{CUT}")
        content, pieces, unread, front = self._reader.read(path, size, known if cut_alike else "")
        if pieces is None:
            self._stamps[name] = stamp
            return
        chunks, model = [_chunk(name, *piece) for piece in pieces], self._embedder.fingerprint
        new = self._store.without_vector(model, chunks)
        for first in range(0, len(new), _AT_ONCE):
            part = new[first : first + _AT_ONCE]
            vectors = self._embedder.encode([_embedded_text(chunk) for chunk in part])
            named = {chunk.digest: vector for chunk, vector in zip(part, vectors, strict=True)}
            self._store.keep_vectors(model, named)
            self._embedded += len(part)
            if first + _AT_ONCE < len(new):
                yield (first + _AT_ONCE) / len(new)
        dated, about = described(name, front)
        self._changes[name] = IndexedFile(content, chunks, stamp, unread, dated or date, about)
        if unread:
            self._unread.append((name, unread))
        self._written.add(name)

    def _portion_is_full(self) -> bool:
        many = max(_PORTION, (self._manifest.chunks if self._manifest else 0) // _SHARE)
        before, begun_s = self._portion
        return self._embedded - before >= many or time.monotonic() - begun_s >= _PORTION_S

    def _committed(self, *, last: bool) -> Report:
        """Make visible what has been read. Other files stay unchanged, if they are cut alike."""
        waiting, old = {name for _, name in self._waiting}, self._old.keys()
        stays = self._kept | (waiting & old if self._same_cut else set())
        gone, manifest = self._store.files().keys() - stays, self._manifest
        if self._changes or gone or manifest is None or manifest.settings() != self._settings:
            manifest = self._store.commit(self._settings, self._changes, gone, last=last)
        self._store.stamp(self._stamps)
        self._manifest, self._changes, self._stamps = manifest, {}, {}
        self._portion = self._embedded, time.monotonic()
        return Report(
            added=len(self._kept - old),
            changed=len(self._written & old),
            deleted=len(old - self._kept - waiting),
            unchanged=len((self._kept & old) - self._written),
            skipped=tuple(sorted(self._skipped.items())),
            ignored=tuple(sorted(self._found.ignored)),
            chunks=manifest.chunks,
            embedded=self._embedded,
            snapshot=manifest.snapshot,
            left=len(waiting),
            left_bytes=sum(size for size, _ in self._waiting),
            next_file=self._waiting[-1][1] if waiting else "",
            unread=tuple(self._unread),
        )


def _chunk(name: str, text: str, title: str, start: int, end: int, page: int) -> Chunk:
    digest = hashlib.sha256(f"{title}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()
    return Chunk(digest[:32], text, title, name, start, end, page)


def _embedded_text(chunk: Chunk) -> str:
    """Return a chunk's text after its title, unless it begins with that."""
    title = chunk.title.removesuffix("…")
    if " ".join(chunk.text.split()).startswith(title):
        return chunk.text
    return f"{chunk.title}\n{chunk.text}"
