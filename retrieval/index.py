"""The index of a directory of documents: searched by many processes, updated by one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import filelock
import numpy as np
from numpy.typing import NDArray

from .embedding import Embedder
from .errors import DocumentError, RetrievalError
from .ingestion import Found, content_hash, find, read_file
from .kv_store import KvWriter, prune_kv
from .nearest import APPROXIMATE_FROM
from .pending import Pending
from .snapshot import (
    Chunk,
    IndexedFile,
    Manifest,
    Piece,
    Snapshot,
    next_snapshot,
    ordered_chunks,
    read_manifest,
    sweep,
    write_snapshot,
)
from .storage import make_directory

Vectors = NDArray[np.float32]

_BLOCK = 4096  # rows copied at a time into a new snapshot


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
    """`done` of `total` files are finished; `file` is the newest of them."""

    file: str
    done: int
    total: int


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
    """

    added: int
    changed: int
    deleted: int
    unchanged: int
    skipped: tuple[tuple[str, str], ...]
    ignored: tuple[str, ...]
    chunks: int
    embedded: int
    prefilled: int


class Index:
    """A snapshot of an index, open for searching; later updates do not change it."""

    def __init__(self, directory: Path, snapshot: Snapshot) -> None:
        """Use `Index.open`."""
        self.directory = directory
        self._snapshot = snapshot

    @classmethod
    def open(cls, directory: Path) -> "Index":
        """Open the newest snapshot of the index in `directory`; takes about a millisecond.

        Raises:
            RetrievalError: there is no index, or it is damaged or of another version.
        """
        manifest = read_manifest(directory)
        while manifest is not None:
            try:
                return cls(directory, Snapshot(directory, manifest))
            except (FileNotFoundError, RetrievalError) as error:
                # An update may have replaced the snapshot between the two reads.
                newest = read_manifest(directory)
                if newest == manifest:
                    raise RetrievalError(
                        f"the index in {directory} is damaged: make it anew with "
                        f"{manifest.rebuild_command}"
                    ) from error
                manifest = newest
        raise RetrievalError(f"there is no index in {directory}: make one with dragonrt index DIR")

    @property
    def manifest(self) -> Manifest:
        """The settings and the size of the index."""
        return self._snapshot.manifest

    def __len__(self) -> int:
        """The number of chunks."""
        return self.manifest.chunks

    def chunks(self) -> Iterator[Chunk]:
        """All chunks, in the order of their files."""
        return (self._snapshot.chunk(row) for row in range(len(self)))

    def search(self, vector: Vectors, k: int) -> list[Hit]:
        """The `k` chunks (fewer in a smaller index) of greatest cosine, best first.

        `vector` is a question's embedding, float32 [dimension], normalised.

        Raises:
            RetrievalError: the vector is of another dimension than the index.
        """
        if len(self) == 0 or k < 1:
            return []
        if vector.shape != (self.manifest.dimension,):
            raise RetrievalError(
                f"a vector of shape {vector.shape} cannot be searched in an index of dimension "
                f"{self.manifest.dimension}: use the embedding model {self.manifest.model}"
            )
        rows, scores = self._snapshot.search(np.asarray(vector, dtype=np.float32), k)
        return [
            Hit(self._snapshot.chunk(int(row)), float(score))
            for row, score in zip(rows, scores, strict=True)
        ]

    @classmethod
    def update(
        cls,
        directory: Path,
        documents: Path | Sequence[Path],
        embedder: Embedder,
        words: int = 64,
        overlap: int = 0,
        progress: Callable[[Progress], None] | None = None,
        kv: KvWriter | None = None,
        rebuild: bool = False,
    ) -> Report:
        """Make the index in `directory` hold exactly `documents`, a directory or files.

        Only new and changed text is embedded (and prefilled, if `kv` is given). The change becomes
        visible at once and only at the end. An update that is interrupted, in whatever way, leaves
        the index as it was; the next one takes up the finished files' embeddings and KV.

        Args:
            words, overlap: size of the chunks, see `chunking.chunk`.
            progress: called after every file; an exception it raises stops the update.
            kv: how to compute and where to keep the KV of every chunk.
            rebuild: ignore the present index, whatever model made it and whatever its state.

        Raises:
            RetrievalError: the documents do not exist, another process is updating the index, the
                index was made with another embedding model, or the disk refuses.
        """
        found = find(documents, directory)
        make_directory(directory)
        try:
            with filelock.FileLock(directory / "writer.lock", timeout=0):
                old = None if rebuild else _present(directory, embedder)
                sweep(directory, old.manifest.snapshot if old else _valid(directory))
                update = _Update(directory, found, embedder, words, overlap, kv, old)
                return update.run(progress)
        except filelock.Timeout:
            raise RetrievalError(
                f"another process is updating the index in {directory}: wait until it is done"
            ) from None


class _Update:
    """One run of `Index.update`, under the writer's lock."""

    def __init__(
        self,
        directory: Path,
        found: Found,
        embedder: Embedder,
        words: int,
        overlap: int,
        kv: KvWriter | None,
        old: Snapshot | None,
    ) -> None:
        self._directory = directory
        self._found = found
        self._embedder = embedder
        self._words = words
        self._overlap = overlap
        self._kv = kv
        self._old = old
        self._old_files = old.files() if old else {}
        self._old_rows = {d: row for row, d in enumerate(ordered_chunks(self._old_files))}
        same_cut = old is not None and (old.manifest.words, old.manifest.overlap) == (
            words,
            overlap,
        )
        self._reusable = self._old_files if same_cut else {}
        self._pending = Pending(directory, embedder.fingerprint)
        self._fresh = self._pending.read()
        self._embedded = 0
        self._prefilled = 0

    def run(self, progress: Callable[[Progress], None] | None) -> Report:
        files: dict[str, IndexedFile] = {}
        skipped = []
        for done, (name, path) in enumerate(self._found.files.items(), start=1):
            try:
                files[name] = self._read(name, path)
            except DocumentError as error:
                skipped.append((name, str(error)))
            else:
                self._embed(files[name])
                self._prefill(files[name].pieces)
            if progress is not None:
                progress(Progress(name, done, len(self._found.files)))
        chunks = self._commit(files)
        old = self._old_files
        return Report(
            added=len(files.keys() - old.keys()),
            changed=sum(files[name] != old[name] for name in files.keys() & old.keys()),
            deleted=len(old.keys() - files.keys()),
            unchanged=sum(files[name] == old[name] for name in files.keys() & old.keys()),
            skipped=tuple(skipped),
            ignored=self._found.ignored,
            chunks=chunks,
            embedded=self._embedded,
            prefilled=self._prefilled,
        )

    def _read(self, name: str, path: Path) -> IndexedFile:
        content = content_hash(path)
        known = self._reusable.get(name)
        if known is not None and known.content == content:
            return known
        return read_file(path, content, self._words, self._overlap)

    def _embed(self, file: IndexedFile) -> None:
        new = {
            piece.digest: piece
            for piece in file.pieces
            if piece.digest not in self._fresh and piece.digest not in self._old_rows
        }
        if not new:
            return
        vectors = self._embedder.encode([_embedded_text(piece) for piece in new.values()])
        embedded = dict(zip(new, vectors, strict=True))
        self._pending.write(embedded)
        self._fresh.update(embedded)
        self._embedded += len(embedded)

    def _prefill(self, pieces: Sequence[Piece]) -> None:
        if self._kv is None:
            return
        by_digest = {piece.digest: piece for piece in pieces}
        for digest in self._kv.store.missing(by_digest):
            piece = by_digest[digest]
            self._kv.store.write(digest, self._kv.compute(piece.text, piece.title))
            self._prefilled += 1

    def _commit(self, files: dict[str, IndexedFile]) -> int:
        chunks = list(ordered_chunks(files))
        manifest = Manifest(
            snapshot=next_snapshot(self._directory),
            documents=self._found.root,
            model=self._embedder.name,
            fingerprint=self._embedder.fingerprint,
            words=self._words,
            overlap=self._overlap,
            files=len(files),
            chunks=len(chunks),
            dimension=self._dimension(),
            approximate=len(chunks) >= APPROXIMATE_FROM,
        )
        old = self._old.manifest if self._old else None
        if files != self._old_files or old != replace(
            manifest, snapshot=old.snapshot if old else ""
        ):
            write_snapshot(self._directory, manifest, files, self._blocks(chunks))
            sweep(self._directory, manifest.snapshot)
        self._pending.clear()
        prune_kv(self._directory, chunks)
        return len(chunks)

    def _dimension(self) -> int:
        for vector in self._fresh.values():
            return len(vector)
        return self._old.manifest.dimension if self._old else 0

    def _blocks(self, chunks: list[str]) -> Iterator[Vectors]:
        for start in range(0, len(chunks), _BLOCK):
            yield np.stack([self._vector(digest) for digest in chunks[start : start + _BLOCK]])

    def _vector(self, digest: str) -> Vectors:
        if digest in self._fresh:
            return self._fresh[digest]
        if self._old is None:
            raise KeyError(digest)
        vector: Vectors = self._old.vectors[self._old_rows[digest]]
        return vector


def _present(directory: Path, embedder: Embedder) -> Snapshot | None:
    manifest = read_manifest(directory)
    if manifest is None:
        return None
    embedder.require(manifest.model, manifest.fingerprint, manifest.rebuild_command)
    return Index.open(directory)._snapshot


def _valid(directory: Path) -> str | None:
    """The snapshot that readers still use while the index is made anew."""
    try:
        manifest = read_manifest(directory)
    except RetrievalError:
        return None
    return manifest.snapshot if manifest else None


def _embedded_text(piece: Piece) -> str:
    """A chunk is found by its document's title too, unless it begins with it."""
    title = piece.title.removesuffix("…")
    if " ".join(piece.text.split()).startswith(title):
        return piece.text
    return f"{piece.title}\n{piece.text}"
