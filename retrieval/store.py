"""The tables of an index, and the SQL that reads and changes them in either database.

Equal chunks are stored once, with all their places in files. A vector is stored once it is
computed, by its chunk's digest and its model; all other changes of a portion of files are one
transaction. After an interruption the next update finds its committed portions and vectors.
"""

import re
import time
import weakref
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, ClassVar, Self

from . import RetrievalError
from .embedding import Embedder, Vectors


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document, the unit of search: characters `start:end` of the text of `source`.

    `digest` is a hash of text and title, and names the chunk's KV. `title` is the document's, with
    the headings above the chunk: "Museum › Hours". `page` counts from 1 (0: no pages). `source` is
    a file's name; of equal chunks in several files one is returned. `dated` is the file's date (ISO
    8601), from its front matter or else its modification.
    """

    digest: str
    text: str
    title: str
    source: str
    start: int
    end: int
    page: int = 0
    dated: str = ""

    @property
    def citation(self) -> str:
        """Return the chunk's title, and its page if known, to cite it: "Museum › Hours, page 3"."""
        return f"{self.title}, page {self.page}" if self.page else self.title


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file as `Store.commit` stores it: content hash, chunks in order, `ingestion.file_stamp`.

    `unread` counts its content that is not text: "2 pictures". `dated` is an ISO date. `about` are
    words of its name and front matter, by which each of its chunks is found, too.
    """

    content: str
    chunks: Sequence[Chunk]
    stamp: str
    unread: str
    dated: str
    about: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of an index's snapshot: its settings, number (from 1), counts, dimension.

    Settings are `documents` (paths), the embedding `model`, its `fingerprint`, `words` per chunk.
    The counts are `files` and `chunks`; `dimension` is the length of an embedding.
    """

    documents: str
    model: str
    fingerprint: str
    words: int
    snapshot: int = 0
    files: int = 0
    chunks: int = 0
    dimension: int = 0

    def settings(self) -> "Manifest":
        """Return a copy with 0 for all but the settings, to find out if an update changes them."""
        return Manifest(self.documents, self.model, self.fingerprint, self.words)


FREQUENT = 1000
"""Rare words are in at most so many chunks together; `Store.chunks_with` returns twice as many."""
FORMAT = 6
"""Version of the tables; a store of another format is refused until it is rebuilt."""

TABLES = """
CREATE TABLE IF NOT EXISTS manifest (
    snapshot BIGINT, documents TEXT, model TEXT, fingerprint TEXT, words INTEGER, files BIGINT,
    chunks BIGINT, dimension INTEGER
);
CREATE TABLE IF NOT EXISTS files (
    id {key}, path {blob} NOT NULL UNIQUE, content TEXT NOT NULL, stamp TEXT NOT NULL,
    unread TEXT NOT NULL, dated TEXT NOT NULL, about TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS chunks (
    id {key}, digest TEXT NOT NULL UNIQUE, text TEXT NOT NULL, title TEXT NOT NULL,
    about TEXT NOT NULL
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

_SINCE = re.compile(r"since:(\S+)\s*(.*)", re.DOTALL)
_PLACES = "places JOIN files ON files.id = file JOIN chunks ON chunks.id = chunk"
_MANIFEST = ", ".join(field.name for field in fields(Manifest))
_PUT_FILE = """
INSERT INTO files (path, content, stamp, unread, dated, about) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (path) DO UPDATE SET content = excluded.content, stamp = excluded.stamp,
unread = excluded.unread, dated = excluded.dated, about = excluded.about RETURNING id
"""
_PUT_CHUNK = """
INSERT INTO chunks (digest, text, title, about) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_CHUNKS_OF = "SELECT chunk FROM places JOIN files ON files.id = file WHERE path = ?"
_ABOUT = "SELECT DISTINCT chunk, files.about FROM places JOIN files ON files.id = file WHERE "
_PUT_PLACE = """
INSERT INTO places (file, first, last, page, chunk)
SELECT ?, ?, ?, ?, id FROM chunks WHERE digest = ?
"""
# The n-th chunk of the m-th newest file has the place n times m.
_LIKELIEST = """dense_rank() OVER (ORDER BY dated DESC, path)
* row_number() OVER (PARTITION BY file ORDER BY first), """
_DURABLE_EVERY_S = 1.0


class Store(ABC):
    """A connection to the tables of an index: base of SqliteStore and PostgresStore.

    A reader sees the snapshot that was the newest at `read`; `BEGIN` is the SQL that begins it. A
    writer uses the store as a context, which closes the `connection` (DB-API 2). `where` names the
    store in errors, and `options` are those of `dragonrt index` that select the store.
    """

    BEGIN: ClassVar[str] = "BEGIN"
    options: str
    where: object

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._durable = time.monotonic()
        weakref.finalize(self, connection.close)

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the tables exist. Raises RetrievalError if they are of another format."""

    @abstractmethod
    def nearest(
        self, vector: Vectors, k: int, among: Collection[int] | None = None
    ) -> dict[int, float]:
        """Return {id: cosine} of the `k` chunks nearest to `vector`; of those `among`, if given."""

    @abstractmethod
    def counts(self, words: Sequence[str]) -> dict[str, int]:
        """Return how many chunks have each word, in text, title or `about` (see IndexedFile)."""

    @abstractmethod
    def chunks_with(self, words: Sequence[str], among: Collection[int] | None = None) -> list[int]:
        """Return ids of chunks with all `words`: those in `among`, or at most 2000 of all."""

    def prepare_search(self, manifest: Manifest, changed: Collection[int]) -> None:  # noqa: B027
        """Update the database's tables of words and vectors; `commit` calls this at its end.

        `changed` are ids of chunks with new `about` (see IndexedFile). SQLite needs no such update.
        """

    @abstractmethod
    def explained(self, error: Exception) -> RetrievalError:
        """Return a RetrievalError that explains the database's `error` to the user, in one line."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is not None:  # Ctrl-C too: finished vectors are kept
            with suppress(RetrievalError):
                self.flush()
        self.connection.close()

    def read(self) -> Manifest:
        """Begin to read the newest snapshot; return its manifest. Raises RetrievalError if none."""
        try:
            self.run(self.BEGIN)
            manifest = self.manifest() if self.exists() else None
            if manifest is None:
                raise self.missing()
        except BaseException:  # whatever ends it, nobody else closes this connection
            self.connection.close()
            raise
        return manifest

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Return a context in which exceptions become RetrievalErrors, made by `explained`."""
        try:
            yield
        except Exception as error:
            raise self.explained(error) from error

    def run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run an SQL statement with values for its "?", and return all its rows."""
        with self.explaining():
            cursor = self.connection.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def flush(self) -> None:
        """Commit the statements that were run, so that their changes are durable."""
        with self.explaining():
            self.connection.commit()
        self._durable = time.monotonic()

    def manifest(self) -> Manifest | None:
        """Return the manifest of the newest snapshot; None before the first one is committed."""
        rows = self.run(f"SELECT {_MANIFEST} FROM manifest")
        return Manifest(*rows[0]) if rows else None

    def missing(self) -> RetrievalError:
        """Return (do not raise) the error that there is no index, with the command to make one."""
        return RetrievalError(
            f"there is no index in {self.where}: make one with dragonrt index DIR{self.options}"
        )

    def other_format(self, found: str) -> RetrievalError:
        """Return (do not raise) the error that the index is of another format, `found`."""
        return RetrievalError(
            f"the index in {self.where} is of {found}, this version reads format {FORMAT}: "
            f"rebuild it with dragonrt index DIR{self.options} --rebuild"
        )

    def require(self, embedder: Embedder, manifest: Manifest) -> None:
        """Raise RetrievalError, with how to rebuild, if another embedding model made the index."""
        if manifest.fingerprint != embedder.fingerprint:
            other = manifest.model != embedder.name
            raise RetrievalError(
                f"the index was made with the embedding model {manifest.model}, not with "
                f"{embedder.name if other else 'another version of it'}: rebuild it with "
                f"dragonrt index {manifest.documents}{self.options} --rebuild"
            )

    def _described(self, numbers: Collection[int]) -> Iterator[int]:
        """Update the words about chunks, those of all their files; yield the changed chunks."""
        about, ids = defaultdict[int, list[str]](list), [*numbers]
        for first in range(0, len(ids), FREQUENT):  # the length of a statement is bounded
            some = _among(ids[first : first + FREQUENT], "chunk")
            for number, words in self.run(f"{_ABOUT} {some} ORDER BY 2"):
                about[number].append(words)
        for number, each in about.items():
            words, sql = "\n".join(each), "UPDATE chunks SET about = ? WHERE id = ? AND about <> ?"
            if self.run(f"{sql} RETURNING id", words, number, words):
                yield number

    def chunks(self, numbers: Collection[int], within: str = "") -> dict[int, Chunk]:
        """Return {id: chunk} of the ids `numbers` whose chunk is in a file that `within` names.

        A chunk's `source` is the first such file. `within` is as in `Index.search`; "" names all.
        """
        condition, values = _limit(within)
        found: dict[int, Chunk] = {}
        which = f"{_among(numbers)} AND {condition}"
        for number, chunk in self._placed(which, "path, first", *values):
            found.setdefault(number, chunk)
        return found

    def within(self, limit: str) -> set[int]:
        """Return ids of chunks of files `limit` names: "notes/", "#tag". RetrievalError if none."""
        condition, values = _limit(limit)
        found = self.run(f"SELECT chunk FROM {_PLACES} WHERE {condition}", *values)
        if not found:
            raise RetrievalError(
                f"no document of the index is {limit!r}: name a file, a folder/, a #tag or "
                "since:2026-01-31"
            )
        return {number for (number,) in found}

    def chunks_of(self, path: str) -> list[Chunk]:
        """Return the chunks of the file `path` in the text's order; none without such a file."""
        return [chunk for _, chunk in self._placed("path = ?", "first", _key(path))]

    def _placed(self, which: str, order: str, *values: object) -> Iterator[tuple[int, Chunk]]:
        """Yield the id and the chunk at each place that an SQL condition selects."""
        sql = f"SELECT chunk, digest, text, title, path, first, last, page, dated FROM {_PLACES}"
        found = self.run(f"{sql} WHERE {which} ORDER BY {order}", *values)
        for number, digest, text, title, path, *place in found:
            yield number, Chunk(digest, text, title, _name(path), *place)

    def ids_by_digest(self, *, likeliest: bool = False) -> dict[str, int]:
        """Return {digest: id} of all chunks, in the order of files' names and of each text.

        If `likeliest`, those that questions may need most come first: beginnings of new files.
        """
        order = (_LIKELIEST if likeliest else "") + "path, first"
        return dict(self.run(f"SELECT digest, chunk FROM {_PLACES} ORDER BY {order}"))

    def longer_than(self, characters: int) -> list[int]:
        """Return ids of chunks whose text and title have over `characters` characters together."""
        sql = "SELECT id FROM chunks WHERE length(text) + length(title) > ? ORDER BY id"
        return [number for (number,) in self.run(sql, characters)]

    def files(self) -> dict[str, tuple[str, str]]:
        """Return (content hash, stamp of `ingestion.file_stamp`) of every indexed file, by name."""
        rows = self.run("SELECT path, content, stamp FROM files")
        return {_name(path): (content, stamp) for path, content, stamp in rows}

    def unread(self, path: str) -> str:
        """Return counts of a file's content that is not text, such as "2 pictures"; "" if none."""
        sql = "SELECT unread FROM files WHERE path = ?"
        return "".join(each for (each,) in self.run(sql, _key(path)))

    def tags(self) -> list[str]:
        """Return the tags in the front matter of all files, such as "#garden", sorted."""
        found = self.run("SELECT about FROM files")
        return sorted({tag for (about,) in found for tag in re.findall(r"(?<= )#\S+(?= )", about)})

    def stamp(self, stamps: Mapping[str, str]) -> None:
        """Commit new stamps (`ingestion.file_stamp`), by path, of files of unchanged content."""
        for path, stamp in stamps.items():
            self.run("UPDATE files SET stamp = ? WHERE path = ?", stamp, _key(path))
        self.flush()

    def without_vector(self, fingerprint: str, chunks: Iterable[Chunk]) -> list[Chunk]:
        """Return those `chunks` without a vector of the model `fingerprint`, each digest once."""
        known = "SELECT 1 FROM vectors WHERE digest = ? AND fingerprint = ?"
        unique = {chunk.digest: chunk for chunk in chunks}
        return [chunk for name, chunk in unique.items() if not self.run(known, name, fingerprint)]

    def keep_vectors(self, fingerprint: str, vectors: Mapping[str, Vectors]) -> None:
        """Store a model's vectors by their chunks' digests; commit at most once a second."""
        for digest, vector in vectors.items():
            self.run("INSERT INTO vectors VALUES (?, ?, ?)", digest, fingerprint, vector.tobytes())
        if time.monotonic() - self._durable >= _DURABLE_EVERY_S:
            self.flush()

    def commit(
        self,
        settings: Manifest,
        changes: Mapping[str, IndexedFile],
        gone: Iterable[str],
        *,
        last: bool,
    ) -> Manifest:
        """Store the files `changes`, by path, delete the files `gone`; return the new manifest.

        All chunks' vectors must be stored before. `settings` are those of the new snapshot. The
        `last` commit of an update deletes vectors of other models and of chunks that are gone.
        """
        self.flush()
        try:
            touched = set[int]()
            for path in (*gone, *changes):
                touched.update(number for (number,) in self.run(_CHUNKS_OF, _key(path)))
            for path in gone:
                self.run("DELETE FROM files WHERE path = ?", _key(path))
            for path, file in changes.items():
                values = _key(path), file.content, file.stamp, file.unread, file.dated, file.about
                ((number,),) = self.run(_PUT_FILE, *values)
                self.run("DELETE FROM places WHERE file = ?", number)
                for chunk in file.chunks:
                    self.run(_PUT_CHUNK, chunk.digest, chunk.text, chunk.title, file.about)
                    self.run(_PUT_PLACE, number, chunk.start, chunk.end, chunk.page, chunk.digest)
                touched.update(number for (number,) in self.run(_CHUNKS_OF, _key(path)))
            self.run("DELETE FROM chunks WHERE id NOT IN (SELECT chunk FROM places)")
            changed = [*self._described(touched)]
            if last:
                self.run(
                    "DELETE FROM vectors WHERE fingerprint <> ? OR digest NOT IN "
                    "(SELECT digest FROM chunks)",
                    settings.fingerprint,
                )
            before = self.manifest()
            ((files, chunks, dimension),) = self.run(
                "SELECT (SELECT count(*) FROM files), count(*), (SELECT length(vector) / 4 "
                "FROM vectors WHERE fingerprint = ? LIMIT 1) FROM chunks",
                settings.fingerprint,
            )
            manifest = replace(
                settings,
                snapshot=before.snapshot + 1 if before else 1,
                files=files,
                chunks=chunks,
                dimension=dimension or 0,
            )
            self.run("DELETE FROM manifest")
            places = ", ".join("?" * len(fields(Manifest)))
            self.run(f"INSERT INTO manifest ({_MANIFEST}) VALUES ({places})", *astuple(manifest))
            self.prepare_search(manifest, changed)
            self.flush()
        except BaseException:  # Ctrl-C too
            self.connection.rollback()
            raise
        return manifest


def _limit(within: str) -> tuple[str, Sequence[object]]:
    """Return an SQL condition on files, and its values, for `within` as of `Index.search`."""
    match = _SINCE.fullmatch(within)
    since, name = match.groups() if match else ("", within)
    if name.startswith("#"):
        tag = f" {name.lower()} "
        return "dated >= ? AND replace(files.about, ?, '') <> files.about", (since, tag)
    if name and not name.endswith("/"):
        return "dated >= ? AND path = ?", (since, _key(name))
    return "dated >= ? AND substr(path, 1, ?) = ?", (since, len(_key(name)), _key(name))


def _among(numbers: Collection[int], column: str = "chunks.id") -> str:
    """Return a condition on a chunk's id that is valid SQL without `numbers`, too."""
    return f"{column} IN ({', '.join(map(str, numbers)) or 'NULL'})"


def _key(path: str) -> bytes:
    return path.encode("utf-8", "surrogatepass")


def _name(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")
