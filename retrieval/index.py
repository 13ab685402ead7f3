"""The index of a directory of documents: searched by many processes, updated by one."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from .documents import Parser, require, way
from .embedding import Embedder, Vectors
from .failures import DocumentError, RetrievalError
from .ingestion import FoundFiles, content_hash, find, read_file, stamp
from .kv_store import KvWriter, prune_kv
from .postgres_store import PostgresStore
from .questions import words_of
from .sqlite_store import SqliteStore
from .store import Chunk, IndexedFile, Manifest, Search, Store

_AT_ONCE = 64  # chunks embedded before they are kept


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
    """`done` of `total` files are finished; `file` is the newest, `embedded` counts new chunks.

    Once all files are indexed, `done` of `total` chunks have their KV, `file` has the newest of
    them, and `kv_bytes` is what all will take, as estimated from those that are done.
    """

    file: str
    done: int
    total: int
    embedded: int = 0
    kv_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What an update did.

    Attributes:
        added, changed, deleted, unchanged: numbers of files; a file that was indexed and can no
            longer be read counts as deleted.
        skipped: files that could not be read, each with the reason.
        ignored: files of kinds that are not documents.
        chunks: number of chunks now in the index.
        embedded, prefilled: how many chunks were embedded and how many got their KV computed.
        deferred: how many chunks' KV did not fit the limit and is computed when it is needed.
        snapshot: the number of the index's snapshot that this is.
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
    prefilled: int = 0
    deferred: int = 0


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

    def chunks(self) -> Iterator[Chunk]:
        """All chunks, in the order of their files."""
        for number in self._store.ids().values():
            yield self._store.chunks([number])[number]

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
        kv: KvWriter | None = None,
        rebuild: bool = False,
        url: str | None = None,
        wait_s: float = 0.0,
        parser: Parser = "pdfium",
    ) -> Report:
        """Make the index in `directory` hold exactly `documents`, a directory or files.

        Only new and changed text is embedded (and prefilled, if `kv` is given). The change becomes
        visible at once and only at the end. An update that is interrupted, in whatever way, leaves
        the index as it was; the next one takes up the finished files' embeddings and KV.

        Args:
            words: size of the chunks, see `chunking.chunk`.
            progress: called after every file, in a long one and after every chunk's KV; an
                exception it raises stops the update.
            kv: how to compute and where to keep the KV of every chunk.
            rebuild: ignore the present index, whatever model made it and whatever its state.
            url: of the PostgreSQL database that has the index instead; `directory` then has the
                KV alone.
            wait_s: how long to wait for another process that updates the index.
            parser: what reads PDF; one that was read by another is read again.

        Raises:
            RetrievalError: the documents do not exist, another process is updating the index, the
                index was made with another embedding model, the parser is not installed, or the
                disk refuses.
        """
        require(parser)
        found = find(documents, directory)
        writing = (
            PostgresStore.writing(url, rebuild, wait_s)
            if url
            else SqliteStore.writing(directory, rebuild, wait_s)
        )
        with writing as store:
            old = None if rebuild else store.manifest()
            if old is not None:
                store.require(embedder, old)
            settings = Manifest(found.root, embedder.name, embedder.fingerprint, words)
            progress = progress or (lambda now: None)
            update = _Update(store, old, settings, found, embedder, progress, parser)
            report = update.run()
            prune_kv(directory, store.ids())
            return report if kv is None else update.prefill(kv, report)


@dataclass
class _Update:
    """One run of `Index.update`, by the only writer.

    `_old` is None if nothing of the present index is to be kept.
    """

    _store: Store
    _old: Manifest | None
    _settings: Manifest
    _found: FoundFiles
    _embedder: Embedder
    _progress: Callable[[Progress], None]
    _parser: Parser
    _changes: dict[str, IndexedFile] = field(default_factory=dict)
    _stamps: dict[str, str] = field(default_factory=dict)
    _embedded: int = 0

    def __post_init__(self) -> None:
        self._files = self._store.files() if self._old else {}
        self._same_cut = self._old is not None and self._old.words == self._settings.words

    def run(self) -> Report:
        """Bring the index up to date."""
        kept = []
        skipped = []
        total = len(self._found.files)
        for done, (name, path) in enumerate(self._found.files.items()):
            try:
                for _ in self._take(name, path):
                    self._progress(Progress(name, done, total, self._embedded))
            except DocumentError as error:
                skipped.append((name, str(error)))
            else:
                kept.append(name)
            self._progress(Progress(name, done + 1, total, self._embedded))
        new, old, manifest = set(kept), self._files.keys(), self._old
        if manifest is None or self._changes or old - new or manifest.made_with() != self._settings:
            manifest = self._store.commit(self._settings, self._changes, kept)
        self._store.stamp(self._stamps)
        return Report(
            added=len(new - old),
            changed=len(self._changes.keys() & old),
            deleted=len(old - new),
            unchanged=len((new & old) - self._changes.keys()),
            skipped=tuple(skipped),
            ignored=self._found.ignored,
            chunks=manifest.chunks,
            embedded=self._embedded,
            snapshot=manifest.snapshot,
        )

    def _take(self, name: str, path: Path) -> Iterator[None]:
        """Read a file, if it has changed; stops after every part that will not be done again."""
        known, old_stamp = self._files.get(name, ("", ""))
        before, _, old_way = old_stamp.partition("/")
        now, by = stamp(path), way(path, self._parser)
        same = self._same_cut and by == old_way
        if same and now and now == before:
            return
        content, now = content_hash(path), f"{now}/{by}"
        if same and content == known:
            self._stamps[name] = now
            return
        file = read_file(name, path, content, self._settings.words, now, self._parser)
        if content != known or file.chunks != self._store.chunks_in(name):
            self._changes[name] = file
        else:
            self._stamps[name] = now
        new = self._store.without_vector(self._embedder.fingerprint, file.chunks)
        for first in range(0, len(new), _AT_ONCE):
            part = new[first : first + _AT_ONCE]
            vectors = self._embedder.encode([_embedded_text(chunk) for chunk in part])
            named = {chunk.digest: vector for chunk, vector in zip(part, vectors, strict=True)}
            self._store.keep_vectors(self._embedder.fingerprint, named)
            self._embedded += len(part)
            if first + _AT_ONCE < len(new):
                yield

    def prefill(self, kv: KvWriter, report: Report) -> Report:
        """Compute the KV that chunks lack, in their order, as far as the limit allows."""
        numbers = self._store.ids()
        missing = kv.store.missing(numbers)
        total = len(missing)
        size = kv.store.size() if missing else 0
        new = 0
        for done, digest in enumerate(missing):
            chunk = self._store.chunks([numbers[digest]])[numbers[digest]]
            arrays = kv.compute(chunk.text, chunk.title)
            new += sum(array.nbytes for array in arrays.values())
            if size + new > kv.store.limit:
                return replace(report, prefilled=done, deferred=total - done)
            kv.store.write(digest, arrays)
            estimate = size + new * total // (done + 1)
            self._progress(Progress(chunk.source, done + 1, total, report.embedded, estimate))
        return replace(report, prefilled=total)


def _embedded_text(chunk: Chunk) -> str:
    """A chunk is found by its document's title too, unless it begins with it."""
    title = chunk.title.removesuffix("…")
    if " ".join(chunk.text.split()).startswith(title):
        return chunk.text
    return f"{chunk.title}\n{chunk.text}"
