"""Make, update and search an index of documents; many may search it while one updates it."""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path, PurePath

import numpy as np

from . import DocumentError, RetrievalError
from .embedding import Embedder, Vectors
from .ingestion import CUT, FoundFiles, file_stamp
from .kv_store import prune_kv
from .postgres_store import PostgresStore
from .questions import date_and_words, words_of
from .reader import Reader
from .search import Search, search
from .sqlite_store import SqliteStore
from .store import Chunk, IndexedFile, Manifest, Store

_AT_ONCE = 64  # chunks, of any number of files, that are embedded together
_PORTION, _SHARE = 256, 4
"""New chunks of a portion, or the share of the indexed ones if that is more."""
_CHUNKS_AT_ONCE = 1000  # read by one query
_KINDS = 8  # named of those that are not read
_PORTION_S = 30.0
"""A portion that takes longer ends early: some files take long to read."""
NEAR = 0.1
"""Of 1,153 answers in the first two chunks 25 are in the second alone. Of these 15, 18, 23 and 23
are found at 0.05, 0.1, 0.15 and 0.2, where 31, 42, 50 and 56 % of searches give two chunks."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A found chunk: `score` is its cosine with the question; a search sorts hits by `order`."""

    chunk: Chunk
    score: float
    order: float = 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an update is: the current `file`, `done` of `total` bytes, chunks `embedded`."""

    file: str
    done: int
    total: int
    embedded: int


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an update, or of its part so far, in numbers of files.

    `deleted` includes indexed files that can no longer be read. `skipped` are files that cannot be
    read, with reasons; `ignored` files are of unsupported kinds. The index has `chunks` chunks.
    `left` files of `left_bytes` are still to be read, in about `left_s` seconds, `next_file` first.
    `unread` has files that were read, with counts of content that is not text: "2 pictures".
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
    left_s: float = 0.0
    next_file: str = ""
    unread: tuple[tuple[str, str], ...] = ()

    @property
    def remaining(self) -> str:
        """Return what is still to be read, "3 files, 1.2 MB, about a minute"; "" if nothing is."""
        minutes = round(self.left_s / 60)
        long = f"{minutes} minutes" if minutes > 1 else "a minute"
        return f"{self.left} files, {self.left_bytes / 1e6:.1f} MB, about {long}" * bool(self.left)

    @property
    def other_kinds(self) -> str:
        """Return the suffixes of the `ignored` files, such as ".exe .zip", most frequent first."""
        kinds = Counter(PurePath(name).suffix.lower() or "(none)" for name in self.ignored)
        return " ".join(kind for kind, _ in kinds.most_common(_KINDS))


class Index:
    """A snapshot of an index, open for searching; later updates do not change it."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        """Use `Index.open`."""
        self.store, self.manifest = store, manifest

    @classmethod
    def open(cls, directory: Path, url: str | None = None) -> "Index":
        """Open the newest snapshot, in `directory` or PostgreSQL `url`. RetrievalError if none."""
        store = PostgresStore(url) if url else SqliteStore(directory)
        return cls(store, store.read())

    def __len__(self) -> int:
        """Return the number of chunks."""
        return self.manifest.chunks

    def files(self) -> dict[str, str]:
        """Return the SHA-256 of each indexed file's content in hex, by the file's name."""
        return {name: content for name, (content, _) in self.store.files().items()}

    def chunk(self, number: int) -> Chunk:
        """Return the chunk with the id `number`; `Store.ids_by_digest` returns all ids."""
        return self.store.chunks([number])[number]

    def longer_than(self, characters: int) -> Iterator[Chunk]:
        """Yield chunks whose text and title exceed `characters`: an embedder may truncate them."""
        return self._read(self.store.longer_than(characters))

    def chunks(self) -> Iterator[Chunk]:
        """Yield every chunk once: files in the order of their names, chunks as in the text."""
        return self._read([*self.store.ids_by_digest().values()])

    def _read(self, ids: Sequence[int]) -> Iterator[Chunk]:
        """Iterate over chunks: a query of the store brings many."""
        for start in range(0, len(ids), _CHUNKS_AT_ONCE):
            wanted = ids[start : start + _CHUNKS_AT_ONCE]
            found = self.store.chunks(wanted)
            yield from (found[each] for each in wanted)

    def search(
        self, vector: Vectors, k: int, question: str = "", by: Search = "dense", within: str = ""
    ) -> list[Hit]:
        """Return at most `k` chunks that may answer a question, the likeliest first.

        `vector` is the question's embedding, float32 [dimension], of length 1. `by` "dense" orders
        by cosine, "words" by the share of the question's words that a chunk has (rare words and
        names count more), "hybrid" by the cosine plus half that share. A hit's `score` is always
        the cosine. `within` names documents to search: a file, a folder ("notes/"), a tag
        ("#garden"), a date ("since:2026-01-31"), or a date, a blank and one of the others; ""
        searches all. Raises RetrievalError for another dimension, or if `within` names no document.
        """
        if len(self) == 0 or k < 1:
            return []
        if vector.shape != (self.manifest.dimension,):
            raise RetrievalError(
                f"a vector of shape {vector.shape} cannot be searched in an index of dimension "
                f"{self.manifest.dimension}: use the embedding model {self.manifest.model}"
            )
        vector = np.asarray(vector, dtype=np.float32)
        found = search(self.store, vector, words_of(question), k, by, within)
        return [Hit(chunk, cosine, order) for cosine, order, chunk in found]

    @classmethod
    def update(
        cls,
        directory: Path,
        documents: Path | Sequence[Path] | FoundFiles,
        embedder: Embedder,
        words: int = 64,
        progress: Callable[[Progress], None] = lambda now: None,
        on_portion: Callable[[Report], bool] | None = None,
        rebuild: bool = False,
        url: str | None = None,
        wait_s: float = 0.0,
        exclude: Sequence[str] = (),
        largest: float = math.inf,
        reader: Reader | None = None,
    ) -> Report:
        """Make the index in `directory` hold exactly `documents`, a directory or files.

        Only new and changed text is embedded, small files first. An interrupted update leaves the
        index unchanged or, with `on_portion`, as of the last portion; the next reuses embeddings.

        Args:
            words: the most words of a chunk, see `chunking.chunk`.
            progress: called after every file, and within long ones; its exceptions end the update.
            on_portion: called when about 256 new chunks (or a quarter of the index) have become
                visible, or after half a minute; the update ends if it returns False.
            rebuild: ignore the present index, even one of another model.
            url: of a PostgreSQL database for the index; `directory` then has only stored KV.
            wait_s: how long to wait for another process that updates the index.
            exclude: patterns of files to leave out, see `ingestion.excluded`.
            largest: most bytes of a file, and of its text; larger ones are skipped.
            reader: a Reader with these `words` and `largest`, left open; by default a new one.

        Raises RetrievalError if the documents do not exist, another process updates the index,
        another model made it, or the disk cannot be written.
        """
        found = documents
        if not isinstance(found, FoundFiles):
            found = FoundFiles(found, directory, exclude)
        settings = Manifest(found.root, embedder.name, embedder.fingerprint, words)
        writing = (
            PostgresStore.writing(url, rebuild, wait_s)
            if url
            else SqliteStore.writing(directory, rebuild, wait_s)
        )
        with writing as store, nullcontext(reader) if reader else Reader(words, largest) as reader:
            old = None if rebuild else store.manifest()
            if old is not None:
                store.require(embedder, old)
            update = _Update(store, old, settings, found, embedder, reader)
            for report in update.run(progress, portions=on_portion is not None):
                if report.left and on_portion is not None and not on_portion(report):
                    return report
            prune_kv(directory, store.ids_by_digest())
            return report


def near(hits: Sequence[Hit]) -> list[Hit]:
    """Return the best hit, the first, and all whose `order` (see Hit) is at most 0.1 lower."""
    return [hit for hit in hits if hit.order >= hits[0].order - NEAR]


class Retriever:
    """Finds chunks of an index with the embedding model that the index was made with."""

    def __init__(self, index: Index, embedder: Embedder, search: Search = "hybrid") -> None:
        """Raise RetrievalError if another embedding model made the index."""
        index.store.require(embedder, index.manifest)
        self.index, self._embedder, self._search = index, embedder, search

    def retrieve(
        self, question: str, k: int | None, floor: float | None = None, within: str = ""
    ) -> list[Hit]:
        """Return the `k` most relevant chunks of at least cosine `floor`, best first.

        If `k` is None, return the best and, if nearly as good, the second. `within` names the
        documents to search, in the forms of `Index.search`; "" searches all.
        """
        if len(self.index) == 0 or (k is not None and k < 1):
            return []
        vector = self._embedder.encode_question(question)
        hits = self.index.search(vector, k or 2, question, self._search, within)
        hits = hits if k else near(hits)
        return hits if floor is None else [hit for hit in hits if hit.score >= floor]


class _Update:
    """One run of `Index.update`, by the only writer.

    `_waiting` are sizes of files that are not done, small ones first, and `_read` files that were
    read, with the number of embedded chunks that completes each. `_changes` are not committed yet.
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
        self._changes, self._stamps = dict[str, IndexedFile](), dict[str, str]()
        self._read, self._new = dict[str, tuple[IndexedFile, int]](), dict[str, Chunk]()
        self._skipped, self._unread = found.skipped, list[tuple[str, str]]()
        stored = store.files()
        self._stored, self._old = {*stored}, stored if old else {}
        self._same_cut = old is not None and old.words == settings.words
        self._waiting = {name: size for size, name in sorted(self._to_read())}
        self._done = self._embedded = 0
        self._total, self._begun_s = sum(self._waiting.values()), time.monotonic()
        self._portion = self._embedded, self._begun_s

    def _to_read(self) -> Iterator[tuple[int, str]]:
        """Yield the sizes and names of files that may have changed; keep or skip the others."""
        for name, path in self._found.files.items():
            try:
                size, stamp, _ = file_stamp(path)
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

        def full() -> bool:
            return portions and bool(self._waiting) and self._portion_is_full()

        names = [*self._waiting]
        for name in names:
            try:
                self._begin(name)
            except DocumentError as error:
                self._skipped[name] = str(error)
                self._done += self._waiting.pop(name)
            progress(self._progress(name))
            enough = 1 if name == names[-1] or full() else _AT_ONCE
            while (ready := len(self._new) >= enough) or full():
                if ready:
                    self._embed()
                    progress(self._progress(name))
                if full():
                    yield self._committed(last=False)
        yield self._committed(last=True)

    def _progress(self, name: str) -> Progress:
        """Return how far the update is; the first file that is read may be embedded in part."""
        done = self._done
        for first, (file, end) in islice(self._read.items(), 1):
            part = 1 - (end - self._embedded) / len(file.chunks)
            done += int(max(0.0, part) * self._waiting[first])
        return Progress(name, done, self._total, self._embedded)

    def _begin(self, name: str) -> None:
        """Read a file; its new text is to be embedded, with that of others."""
        known, before = self._old.get(name, ("", ""))
        size, stamp, time_s = file_stamp(path := self._found.files[name])
        cut_alike = self._same_cut and before.endswith(f"/{CUT}")
        content, pieces, unread, front = self._reader.read(
            Path(path), size, known if cut_alike else ""
        )
        if pieces is None:
            if stamp != before:
                self._stamps[name] = stamp
            self._keep(name)
            return
        chunks = [_chunk(name, *piece) for piece in pieces]
        unknown = (chunk for chunk in chunks if chunk.digest not in self._new)
        new = self._store.without_vector(self._embedder.fingerprint, unknown)
        self._new |= {chunk.digest: chunk for chunk in new}
        end = self._embedded + len(self._new)
        dated, about = date_and_words(name, front)
        dated = dated or datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        self._read[name] = IndexedFile(content, chunks, stamp, unread, dated, about), end
        self._finish()

    def _embed(self) -> None:
        """Embed the first of the new chunks."""
        part = [*islice(self._new.values(), _AT_ONCE)]
        vectors = self._embedder.encode([_embedded_text(chunk) for chunk in part])
        named = {chunk.digest: vector for chunk, vector in zip(part, vectors, strict=True)}
        self._store.keep_vectors(self._embedder.fingerprint, named)
        for digest in named:
            del self._new[digest]
        self._embedded += len(part)
        self._finish()

    def _finish(self) -> None:
        """Note the changes of the files whose chunks all have vectors."""
        for name, (file, end) in [*self._read.items()]:
            if end > self._embedded:
                return
            del self._read[name]
            self._changes[name] = file
            if file.unread:
                self._unread.append((name, file.unread))
            self._written.add(name)
            self._keep(name)

    def _keep(self, name: str) -> None:
        self._kept.add(name)
        self._done += self._waiting.pop(name)

    def _portion_is_full(self) -> bool:
        many = max(_PORTION, (self._manifest.chunks if self._manifest else 0) // _SHARE)
        before, begun_s = self._portion
        return self._embedded - before >= many or time.monotonic() - begun_s >= _PORTION_S

    def _committed(self, *, last: bool) -> Report:
        """Make visible what has been read. Other files stay unchanged, if they are cut alike."""
        waiting, old = self._waiting.keys(), self._old.keys()
        stays = self._kept | (waiting & old if self._same_cut else set())
        gone, manifest = self._stored - stays, self._manifest
        if self._changes or gone or manifest is None or manifest.settings() != self._settings:
            manifest = self._store.commit(self._settings, self._changes, gone, last=last)
            self._stored = (self._stored | self._changes.keys()) - gone
        self._store.stamp(self._stamps)
        self._manifest, self._changes, self._stamps = manifest, {}, {}
        now_s = time.monotonic()
        self._portion = self._embedded, now_s
        left = self._total - self._done
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
            left_bytes=left,
            left_s=(now_s - self._begun_s) * left / max(self._done, 1),
            next_file=next(iter(waiting), ""),
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
