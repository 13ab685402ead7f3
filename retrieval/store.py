"""What an index holds, and how it is read and changed in SQL; `sqlite_store` says where.

A chunk is kept once, however many places it stands at, and a vector by its chunk's digest and the
model that made it. Vectors are kept as they come; everything else changes in one transaction. So
an update that is interrupted, in whatever way, leaves the index as it was, and the next one finds
the vectors of the finished files.
"""

import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

from .embedding import Embedder, Vectors
from .failures import RetrievalError


@dataclass(frozen=True, slots=True)
class Place:
    """Where a chunk stands: characters `start:end` of the text of the file `source`.

    `page` is that of its first word, from 1; 0 in a file without pages.
    """

    source: str
    start: int
    end: int
    page: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document, with the place it was found at.

    Attributes:
        digest: names the chunk by its text and title, also in the KV store.
        title: the document's, and the headings that the chunk stands under: "Museum › Hours".
        source: the file, relative to the indexed directory, with "/" on every system.
        start, end: its characters in the file's text.
        page: see `Place`.
        copies: further places of the same chunk; it is embedded and found only once.
    """

    digest: str
    text: str
    title: str
    source: str
    start: int
    end: int
    page: int = 0
    copies: tuple[Place, ...] = ()

    @property
    def citation(self) -> str:
        """What the chunk is called where it is cited: its title and its page."""
        return f"{self.title}, page {self.page}" if self.page else self.title


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file's content hash, its chunks in their order, and its stamp.

    That is `ingestion.stamp`, "/" and `documents.way`.
    """

    content: str
    chunks: tuple[Chunk, ...]
    stamp: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a snapshot of an index holds: the settings it was made with and its size.

    Attributes:
        documents: what was indexed, as arguments of a command line.
        snapshot: counts the changes of the index.
    """

    documents: str
    model: str
    fingerprint: str
    words: int
    snapshot: int = 0
    files: int = 0
    chunks: int = 0
    dimension: int = 0

    def made_with(self) -> "Manifest":
        """The settings alone."""
        return Manifest(self.documents, self.model, self.fingerprint, self.words)


Search = Literal["hybrid", "dense", "words"]
"""How chunks are chosen: see `Index.search`."""

FORMAT = 4
"""Of the tables; a store that has others is refused, and made anew on demand."""

TABLES = """
CREATE TABLE IF NOT EXISTS manifest (
    snapshot BIGINT, documents TEXT, model TEXT, fingerprint TEXT, words INTEGER, files BIGINT,
    chunks BIGINT, dimension INTEGER
);
CREATE TABLE IF NOT EXISTS files (
    id {key}, path {blob} NOT NULL UNIQUE, content TEXT NOT NULL, stamp TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS chunks (
    id {key}, digest TEXT NOT NULL UNIQUE, text TEXT NOT NULL, title TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS places (
    file BIGINT NOT NULL REFERENCES files ON DELETE CASCADE, first INTEGER NOT NULL,
    last INTEGER NOT NULL, page INTEGER NOT NULL, chunk BIGINT NOT NULL, PRIMARY KEY (file, first)
){clustered};
CREATE INDEX IF NOT EXISTS places_of_chunk ON places (chunk);
CREATE TABLE IF NOT EXISTS vectors (
    digest TEXT NOT NULL, fingerprint TEXT NOT NULL, vector {blob} NOT NULL,
    PRIMARY KEY (digest, fingerprint)
);
"""

FUSION = 60
LEAST_POOL = 50  # chunks of each order that are fused
FREQUENT = 1000

PLACES = "places JOIN files ON files.id = file JOIN chunks ON chunks.id = chunk"
CHUNK = "chunk, digest, text, title, path, first, last, page"
_MANIFEST = ", ".join(field.name for field in fields(Manifest))
_DURABLE_EVERY_S = 1.0


class Store(ABC):
    """A connection to an index: a reader sees the snapshot it began with, the writer the newest.

    Paths are stored as bytes, for not every file name is valid Unicode. `connection` is one of the
    database's own (DB-API 2); a writer enters the store as a context, at whose end it is closed.
    """

    BEGIN: ClassVar[str] = "BEGIN"
    """The statement that holds a snapshot for reading."""

    options: str
    """What `dragonrt index` needs beside documents to find this store, behind a space."""

    where: object
    """What holds the index, in an error message."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._durable = time.monotonic()
        weakref.finalize(self, connection.close)

    @abstractmethod
    def exists(self) -> bool:
        """Whether there are tables of an index; RetrievalError if they are of another format."""

    @abstractmethod
    def open_search(self, manifest: Manifest) -> None:
        """Make ready to `search` the snapshot that is held."""

    @abstractmethod
    def search(
        self, vector: Vectors, words: Sequence[str], k: int, by: Search
    ) -> list[tuple[float, float, Chunk]]:
        """The `k` chunks that may answer a question, by its embedding and its words, in any order.

        Of each its rank as a number (the greater the better), its cosine, and itself.

        The rarest words, in up to `FREQUENT` chunks together, find chunks; if there are none, the
        two rarest of the others do where they stand together, up to twice as many. All words count
        in what is found. Where both orders are fused, only chunks of half the words and half the
        best score are found by words: else any chunk near the question that shares a common word
        with it would come before the nearest one.
        """

    @abstractmethod
    def prepare_search(self, manifest: Manifest) -> None:
        """Bring up to date what `search` reads, within the transaction that changes the rest."""

    @abstractmethod
    def explained(self, error: Exception) -> RetrievalError:
        """An error of the database, as one line for the user."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is not None:  # Ctrl-C, too: what was finished is kept
            with suppress(RetrievalError):
                self.flush()
        self.connection.close()

    def read(self) -> Manifest:
        """Hold the newest snapshot for reading, and say what it has.

        Raises:
            RetrievalError: there is no index, or it is damaged or of another version.
        """
        try:
            self.run(self.BEGIN)
            manifest = self.manifest() if self.exists() else None
            if manifest is None:
                raise self.missing()
            self.open_search(manifest)
        except BaseException:  # whatever it is, no connection is left open
            self.connection.close()
            raise
        return manifest

    def run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows that a statement gives; the values stand where it has "?"."""
        try:
            cursor = self.connection.execute(sql, values)
            return cursor.fetchall() if cursor.description else []
        except Exception as error:
            raise self.explained(error) from error

    def flush(self) -> None:
        """Make durable what has been run."""
        try:
            self.connection.commit()
        except Exception as error:
            raise self.explained(error) from error
        self._durable = time.monotonic()

    def manifest(self) -> Manifest | None:
        """The manifest, unless no update has been finished yet."""
        for row in self.run(f"SELECT {_MANIFEST} FROM manifest"):
            return Manifest(*row)
        return None

    def missing(self) -> RetrievalError:
        """That there is no index, and the command that makes one."""
        return RetrievalError(
            f"there is no index in {self.where}: make one with dragonrt index DIR{self.options}"
        )

    def require(self, embedder: Embedder, manifest: Manifest) -> None:
        """Raise RetrievalError, with the cure, if the index was made with another model."""
        if manifest.fingerprint != embedder.fingerprint:
            other = manifest.model != embedder.name
            raise RetrievalError(
                f"the index was made with the embedding model {manifest.model}, not with "
                f"{embedder.name if other else 'another version of it'}: rebuild it with "
                f"dragonrt index {manifest.documents}{self.options} --rebuild"
            )

    def chunks(self, numbers: Collection[int]) -> dict[int, Chunk]:
        """The chunks with some ids, by these."""
        among = ", ".join(map(str, numbers))
        return chunks_of(self.run(f"SELECT {CHUNK} FROM {PLACES} WHERE chunk IN ({among})"))

    def ids(self) -> dict[str, int]:
        """The id of every chunk by its digest, in the order of their files."""
        return dict(self.run(f"SELECT digest, chunk FROM {PLACES} ORDER BY path, first"))

    def longer(self, characters: int) -> list[int]:
        """The ids of the chunks whose text and title have more characters."""
        sql = "SELECT id FROM chunks WHERE length(text) + length(title) > ? ORDER BY id"
        return [number for (number,) in self.run(sql, characters)]

    def files(self) -> dict[str, tuple[str, str]]:
        """The content hash and the stamp of every file, by its path."""
        rows = self.run("SELECT path, content, stamp FROM files")
        return {_name(path): (content, stamp) for path, content, stamp in rows}

    def stamp(self, stamps: Mapping[str, str]) -> None:
        """Files have the content they had, with other stamps."""
        for path, stamp in stamps.items():
            self.run("UPDATE files SET stamp = ? WHERE path = ?", stamp, _key(path))
        self.flush()

    def chunks_in(self, path: str) -> tuple[Chunk, ...]:
        """The chunks of a file, in their order."""
        sql = f"SELECT {CHUNK} FROM {PLACES} WHERE path = ? ORDER BY first"
        return tuple(_chunk(row) for _, *row in self.run(sql, _key(path)))

    def without_vector(self, fingerprint: str, chunks: Iterable[Chunk]) -> list[Chunk]:
        """Those of `chunks` of which no vector by a model is kept, each once."""
        known = "SELECT 1 FROM vectors WHERE digest = ? AND fingerprint = ?"
        unique = {chunk.digest: chunk for chunk in chunks}
        return [chunk for name, chunk in unique.items() if not self.run(known, name, fingerprint)]

    def keep_vectors(self, fingerprint: str, vectors: Mapping[str, Vectors]) -> None:
        """Keep the vectors of chunks, by digest; they are durable a second later at the latest."""
        for digest, vector in vectors.items():
            self.run("INSERT INTO vectors VALUES (?, ?, ?)", digest, fingerprint, vector.tobytes())
        if time.monotonic() - self._durable >= _DURABLE_EVERY_S:
            self.flush()

    def commit(
        self,
        settings: Manifest,
        changes: Mapping[str, IndexedFile],
        paths: Collection[str],
        *,
        last: bool = True,
    ) -> Manifest:
        """Make the files `paths` the content of the index, those in `changes` as given there.

        Returns its manifest: `settings`, with the snapshot and the sizes counted. The vector of
        every chunk has been kept. Unless it is the `last` of an update, vectors of other chunks are
        kept, too: they may be those of files that are still to come.
        """
        self.flush()
        try:
            for gone in self.files().keys() - set(paths):
                self.run("DELETE FROM files WHERE path = ?", _key(gone))
            for path, file in changes.items():
                self._put(_key(path), file)
            self.run("DELETE FROM chunks WHERE id NOT IN (SELECT chunk FROM places)")
            if last:
                self.run(
                    "DELETE FROM vectors WHERE fingerprint <> ? OR digest NOT IN "
                    "(SELECT digest FROM chunks)",
                    settings.fingerprint,
                )
            before = self.manifest()
            ((chunks, dimension),) = self.run(
                "SELECT count(*), (SELECT length(vector) / 4 FROM vectors WHERE fingerprint = ? "
                "LIMIT 1) FROM chunks",
                settings.fingerprint,
            )
            manifest = replace(
                settings,
                snapshot=before.snapshot + 1 if before else 1,
                files=len(paths),
                chunks=chunks,
                dimension=dimension or 0,
            )
            self.run("DELETE FROM manifest")
            places = ", ".join("?" * len(fields(Manifest)))
            self.run(f"INSERT INTO manifest ({_MANIFEST}) VALUES ({places})", *astuple(manifest))
            self.prepare_search(manifest)
            self.flush()
        except BaseException:  # Ctrl-C, too: all of it happens, or nothing
            self.connection.rollback()
            raise
        return manifest

    def _put(self, key: bytes, file: IndexedFile) -> None:
        ((number,),) = self.run(
            "INSERT INTO files (path, content, stamp) VALUES (?, ?, ?) ON CONFLICT (path) "
            "DO UPDATE SET content = excluded.content, stamp = excluded.stamp RETURNING id",
            key,
            file.content,
            file.stamp,
        )
        self.run("DELETE FROM places WHERE file = ?", number)
        for chunk in file.chunks:
            self.run(
                "INSERT INTO chunks (digest, text, title) VALUES (?, ?, ?) "
                "ON CONFLICT (digest) DO NOTHING",
                chunk.digest,
                chunk.text,
                chunk.title,
            )
            self.run(
                "INSERT INTO places (file, first, last, page, chunk) "
                "SELECT ?, ?, ?, ?, id FROM chunks WHERE digest = ?",
                number,
                chunk.start,
                chunk.end,
                chunk.page,
                chunk.digest,
            )


def chunks_of(rows: Iterable[tuple[Any, ...]]) -> dict[int, Chunk]:
    """Chunks by their ids, from the columns `CHUNK` of their places."""
    found: dict[int, Chunk] = {}
    for number, *row in sorted(rows, key=lambda row: row[4:6]):
        at = _chunk(row)
        if number in found:
            copy = Place(at.source, at.start, at.end, at.page)
            found[number] = replace(found[number], copies=(*found[number].copies, copy))
        else:
            found[number] = at
    return found


def _chunk(row: Sequence[Any]) -> Chunk:
    digest, text, title, path, *place = row
    return Chunk(digest, text, title, _name(path), *place)


def other_format(where: object, found: str, options: str) -> RetrievalError:
    """That the index at a place is of another format, and the command that makes it anew."""
    return RetrievalError(
        f"the index in {where} is of {found}, this version reads format {FORMAT}: "
        f"make it anew with dragonrt index DIR{options} --rebuild"
    )


def _key(path: str) -> bytes:
    return path.encode("utf-8", "surrogatepass")


def _name(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")
