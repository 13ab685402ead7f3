"""The index of a directory of documents: searched by many processes, updated by one."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .documents import Parser, require, way
from .embedding import Embedder, Vectors
from .failures import DocumentError, RetrievalError
from .ingestion import CUT, FoundFiles, find, indexed_file, look
from .kv_store import prune_kv
from .postgres_store import PostgresStore
from .questions import words_of
from .reader import Reader
from .sqlite_store import SqliteStore
from .store import Chunk, IndexedFile, Manifest, Search, Store

_AT_ONCE = 64  # chunks embedded before they are kept
_PORTION, _SHARE = 256, 4
"""New chunks of a portion: so many, or a quarter of what is indexed if that is more."""
_PORTION_S = 30.0
"""A portion that takes longer is smaller: some files take long to read."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk found for a question.

    Attributes:
        score: the cosine of question and chunk, or the re-ranker's score of the two.
    """

    chunk: Chunk
    score: float


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of the `total` bytes of new and changed files are indexed, and `embedded` chunks.

    `file` is the one being read.
    """

    file: str
    done: int
    total: int
    embedded: int


@dataclass(frozen=True, slots=True)
class Report:
    """What an update did.

    Attributes:
        added, changed, deleted, unchanged: numbers of files; a file that was indexed and can no
            longer be read counts as deleted.
        skipped: files that could not be read, each with the reason.
        ignored: files of kinds that are not documents.
        chunks: number of chunks now in the index.
        embedded: how many chunks were embedded.
        snapshot: the number of the index's snapshot that this is.
        left, left_bytes, next_file: new and changed files that are still to be read, their size,
            and the one that is read next; none after a whole update.
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


class Index:
    """A snapshot of an index, open for searching; later updates do not change it."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        """Use `Index.open`."""
        self._store = store
        self.manifest = manifest

    @classmethod
    def open(cls, directory: Path, url: str | None = None) -> "Index":
        """Open the newest snapshot of the index in `directory`, or in the database at `url`.

        Raises:
            RetrievalError: there is no index, or it is damaged or of another version.
        """
        store = PostgresStore(url) if url else SqliteStore(directory)
        return cls(store, store.read())

    def require(self, embedder: Embedder) -> None:
        """Raise RetrievalError, with the cure, if the index was made with another model."""
        self._store.require(embedder, self.manifest)

    def fingerprint(self) -> str:
        """Equal where the files' contents, and how they were cut and embedded, are."""
        manifest, digest = self.manifest, hashlib.sha256()
        digest.update(f"{manifest.fingerprint} {manifest.words}".encode())
        for content in sorted(c + s.partition("/")[2] for c, s in self._store.files().values()):
            digest.update(content.encode())
        return digest.hexdigest()

    def __len__(self) -> int:
        """The number of chunks."""
        return self.manifest.chunks

    def files(self) -> dict[str, str]:
        """The SHA-256 of every file's content, by the file's name."""
        return {name: content for name, (content, _) in self._store.files().items()}

    def ids(self) -> dict[str, int]:
        """The id of every chunk by its digest, in the order of their files."""
        return self._store.ids()

    def chunk(self, number: int) -> Chunk:
        """The chunk with one of the `ids`."""
        return self._store.chunks([number])[number]

    def longer(self, characters: int) -> Iterator[Chunk]:
        """The chunks whose text and title have more characters."""
        return map(self.chunk, self._store.longer(characters))

    def chunks(self) -> Iterator[Chunk]:
        """All chunks, in the order of their files."""
        return map(self.chunk, self.ids().values())

    def search(
        self, vector: Vectors, k: int, question: str = "", by: Search = "dense"
    ) -> list[Hit]:
        """The `k` chunks (fewer in a smaller index) that may answer a question, best first.

        By "dense" vectors, those of greatest cosine; by "words", those of greatest BM25 (Robertson
        and Zaragoza 2009); "hybrid", those that stand highest in both orders (reciprocal rank
        fusion, Cormack et al. 2009, with their constant 60). A hit's score is always its cosine.

        Args:
            vector: the question's embedding, float32 [dimension], normalised.
            question: its text, unless the search is dense.

        Raises:
            RetrievalError: the vector is of another dimension than the index, or that is damaged.
        """
        if len(self) == 0 or k < 1:
            return []
        if vector.shape != (self.manifest.dimension,):
            raise RetrievalError(
                f"a vector of shape {vector.shape} cannot be searched in an index of dimension "
                f"{self.manifest.dimension}: use the embedding model {self.manifest.model}"
            )
        vector = np.asarray(vector, dtype=np.float32)
        found = self._store.search(vector, words_of(question), k, by)
        found.sort(key=lambda hit: (-hit[0], -hit[1], hit[2].source, hit[2].start))
        return [Hit(chunk, cosine) for _, cosine, chunk in found]

    @classmethod
    def update(
        cls,
        directory: Path,
        documents: Path | Sequence[Path],
        embedder: Embedder,
        words: int = 64,
        progress: Callable[[Progress], None] | None = None,
        on_portion: Callable[[Report], bool] | None = None,
        rebuild: bool = False,
        url: str | None = None,
        wait_s: float = 0.0,
        parser: Parser = "pdfium",
        exclude: Sequence[str] = (),
        largest: float = math.inf,
        *,
        follow_links: bool = False,
    ) -> Report:
        """Make the index in `directory` hold exactly `documents`, a directory or files.

        Only new and changed text is embedded, that of small files first. The change becomes visible
        at once and only at the end, or else in portions. An update that is interrupted, in whatever
        way, leaves the index as it was; the next one takes up the finished files' embeddings.

        Args:
            words: size of the chunks, see `chunking.chunk`.
            progress: called after every file, and in a long one; an exception it raises stops the
                update.
            on_portion: called with the report so far whenever about 256 new chunks (or a quarter of
                what there is) can be found, or after half a minute; the update
                ends there if it says False. Files that are still to be read are then in the index
                as they were.
            rebuild: ignore the present index, whatever model made it and whatever its state.
            url: of the PostgreSQL database that has the index instead; `directory` then has the
                KV alone.
            wait_s: how long to wait for another process that updates the index.
            parser: what reads PDF; one that was read by another is read again.
            exclude: patterns of names that are left out, see `ingestion.excluded`.
            largest: bytes of a file, and of its text, that is not skipped.
            follow_links: read what links out of the documents lead to.

        Raises:
            RetrievalError: the documents do not exist, another process is updating the index, the
                index was made with another embedding model, the parser is not installed, or the
                disk refuses.
        """
        require(parser)
        found = find(documents, directory, exclude, follow_links=follow_links)
        writing = (
            PostgresStore.writing(url, rebuild, wait_s)
            if url
            else SqliteStore.writing(directory, rebuild, wait_s)
        )
        with writing as store, Reader() as reader:
            old = None if rebuild else store.manifest()
            if old is not None:
                store.require(embedder, old)
            settings = Manifest(found.root, embedder.name, embedder.fingerprint, words)
            progress = progress or (lambda now: None)
            update = _Update(
                store, old, settings, found, embedder, progress, parser, largest, reader
            )
            report = update.run(on_portion)
            if not report.left:
                prune_kv(directory, store.ids())
            return report


@dataclass
class _Update:
    """One run of `Index.update`, by the only writer.

    `_manifest` is that of the index as it is, None if nothing of it is to be kept. `_kept` are the
    files that are as they should be, `_changes` those of them that are not committed yet.
    """

    _store: Store
    _manifest: Manifest | None
    _settings: Manifest
    _found: FoundFiles
    _embedder: Embedder
    _progress: Callable[[Progress], None]
    _parser: Parser
    _largest: float
    _reader: Reader
    _kept: set[str] = field(default_factory=set)
    _changes: dict[str, IndexedFile] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _stamps: dict[str, str] = field(default_factory=dict)
    _skipped: list[tuple[str, str]] = field(default_factory=list)
    _embedded: int = 0

    def __post_init__(self) -> None:
        self._old = self._store.files() if self._manifest else {}
        self._same_cut = self._manifest is not None and self._manifest.words == self._settings.words
        self._skipped += self._found.skipped
        self._waiting = sorted(self._to_read())
        self._total = sum(size for size, _ in self._waiting)
        self._begin_portion()

    def _to_read(self) -> Iterator[tuple[int, str]]:
        """The files that may have changed, with their sizes; the others are kept, or skipped."""
        for name, path in self._found.files.items():
            try:
                size, stamp = look(path)
            except DocumentError as error:
                self._skipped.append((name, str(error)))
                continue
            if size > self._largest:
                reason = f"is of {size / 1e6:.1f} MB, more than --largest-file allows"
                self._skipped.append((name, reason))
            elif (
                self._same_cut
                and stamp
                and self._old.get(name, ("", ""))[1] == self._mark(path, stamp)
            ):
                self._kept.add(name)
            else:
                yield size, name

    def _mark(self, path: Path, stamp: str) -> str:
        return f"{stamp}/{way(path.suffix, self._parser)}{CUT}"

    def run(self, on_portion: Callable[[Report], bool] | None) -> Report:
        """Bring the index up to date, or a portion of it."""
        while self._waiting:
            size, name = self._waiting[0]
            done = self._total - sum(size for size, _ in self._waiting)
            try:
                for part in self._take(name, self._found.files[name]):
                    now = Progress(name, done + int(part * size), self._total, self._embedded)
                    self._progress(now)
                    if on_portion is not None and not self._portion(on_portion):
                        return self._report()
                self._kept.add(name)
            except DocumentError as error:
                self._skipped.append((name, str(error)))
            del self._waiting[0]
            self._progress(Progress(name, done + size, self._total, self._embedded))
            if self._waiting and on_portion is not None and not self._portion(on_portion):
                return self._report()
        self._commit(last=True)
        return self._report()

    def _portion(self, on_portion: Callable[[Report], bool]) -> bool:
        """Commit what there is, if it is time to; whether the update goes on."""
        many = max(_PORTION, (self._manifest.chunks if self._manifest else 0) // _SHARE)
        new, took_s = self._embedded - self._before, time.monotonic() - self._begun_s
        if new < many and took_s < _PORTION_S:
            return True
        self._commit(last=False)
        self._begin_portion()
        return on_portion(self._report())

    def _begin_portion(self) -> None:
        self._before, self._begun_s = self._embedded, time.monotonic()

    def _commit(self, *, last: bool) -> None:
        # Of files that are still to be read the index keeps what it has, if that was cut alike.
        waiting = {name for _, name in self._waiting if self._same_cut}
        paths = self._kept | (waiting & self._old.keys())
        ours, made = self._settings, self._manifest
        if self._changes or made is None or made.made_with() != ours or self._gone(paths):
            self._manifest = self._store.commit(ours, self._changes, paths, last=last)
            self._changes = {}
        self._store.stamp(self._stamps)
        self._stamps = {}

    def _gone(self, paths: set[str]) -> bool:
        return not self._store.files().keys() <= paths

    def _report(self) -> Report:
        manifest, old = self._manifest, self._old.keys()
        assert manifest is not None  # it has been committed
        waiting = {name for _, name in self._waiting}
        return Report(
            added=len(self._kept - old),
            changed=len(self._changed & old),
            deleted=len(old - self._kept - waiting),
            unchanged=len((self._kept & old) - self._changed),
            skipped=tuple(sorted(self._skipped)),
            ignored=self._found.ignored,
            chunks=manifest.chunks,
            embedded=self._embedded,
            snapshot=manifest.snapshot,
            left=len(waiting),
            left_bytes=sum(size for size, _ in self._waiting),
            next_file=self._waiting[0][1] if waiting else "",
        )

    def _take(self, name: str, path: Path) -> Iterator[float]:
        """Read a file, if it has changed; yields the part of it that will not be done again."""
        known, before = self._old.get(name, ("", ""))
        size, stamp = look(path)
        mark, words = self._mark(path, stamp), self._settings.words
        same_way = self._same_cut and before.partition("/")[2] == mark.partition("/")[2]
        content, pieces = self._reader.read(
            path, size, known if same_way else "", words, self._parser, self._largest
        )
        if pieces is None:
            self._stamps[name] = mark
            return
        file = indexed_file(name, content, pieces, mark)
        new = self._store.without_vector(self._embedder.fingerprint, file.chunks)
        for first in range(0, len(new), _AT_ONCE):
            part = new[first : first + _AT_ONCE]
            vectors = self._embedder.encode([_embedded_text(chunk) for chunk in part])
            named = {chunk.digest: vector for chunk, vector in zip(part, vectors, strict=True)}
            self._store.keep_vectors(self._embedder.fingerprint, named)
            self._embedded += len(part)
            if first + _AT_ONCE < len(new):
                yield (first + _AT_ONCE) / len(new)
        if self._same_cut and content == known and file.chunks == self._store.chunks_in(name):
            self._stamps[name] = mark
        else:
            self._changes[name] = file
            self._changed.add(name)


def _embedded_text(chunk: Chunk) -> str:
    """A chunk is found by its document's title too, unless it begins with it."""
    title = chunk.title.removesuffix("…")
    if " ".join(chunk.text.split()).startswith(title):
        return chunk.text
    return f"{chunk.title}\n{chunk.text}"
