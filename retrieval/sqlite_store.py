"""An index in a directory: one SQLite file, read by many processes and written by one.

index.sqlite     files, chunks, places, full text and vectors, with a write-ahead log
nearest-N.faiss  the vectors of snapshot N as they are searched, mapped into memory; made anew
                 from the vectors where it is missing or not whole
writer.lock      held while the index is updated
kv/              see `kv_store`
"""

import heapq
import logging
import os
import shlex
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from . import nearest
from .chunking import spaced
from .embedding import Vectors
from .failures import RetrievalError
from .files import create, make_directory, narrow
from .store import (
    FORMAT,
    FREQUENT,
    FUSION,
    LEAST_POOL,
    TABLES,
    Chunk,
    Manifest,
    Search,
    Store,
    other_format,
)

log = logging.getLogger(__name__)

_FILE = "index.sqlite"
_LEAST_FREE = 2**20  # bytes, below which SQLite says many things
_OURS = (f"{_FILE}*", "nearest-*", "writer.lock", "kv", "kv/*", "kv/*/*")
_FORMER = ("manifest.json", "pending", "snapshot-*", "generation-*")

_SCHEMA = f"""
BEGIN;
{TABLES.format(key="INTEGER PRIMARY KEY", blob="BLOB", clustered=" WITHOUT ROWID")}
CREATE TABLE mapped (bytes INTEGER);
CREATE VIRTUAL TABLE words USING fts5 (
    title, text, content = '', tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE TRIGGER chunk_added AFTER INSERT ON chunks BEGIN
    INSERT INTO words (rowid, title, text) VALUES (new.id, spaced(new.title), spaced(new.text));
END;
CREATE TRIGGER chunk_gone AFTER DELETE ON chunks BEGIN
    INSERT INTO words (words, rowid, title, text)
    VALUES ('delete', old.id, spaced(old.title), spaced(old.text));
END;
PRAGMA user_version = {FORMAT};
COMMIT;
"""


class SqliteStore(Store):
    """The index in a directory."""

    def __init__(self, directory: Path, mode: str = "ro") -> None:
        """The index in `directory`, to be read; use `writing` to change it."""
        self.where: Path = directory
        self.options = _options(directory)
        self._nearest: Any = None
        path = directory / _FILE
        if mode == "ro" and not path.exists():
            _refuse_former(directory)
            raise self.missing()
        if narrow((directory, *(p for name in _OURS for p in directory.glob(name)))):
            log.warning("others could read the index in %s: it is its owner's alone now", directory)
        try:
            uri = f"{path.absolute().as_uri()}?mode={mode}"
            super().__init__(sqlite3.connect(uri, uri=True, check_same_thread=False))
        except sqlite3.Error as error:
            raise self.explained(error) from error

    @classmethod
    @contextmanager
    def writing(
        cls, directory: Path, rebuild: bool, wait_s: float = 0.0
    ) -> Iterator["SqliteStore"]:
        """The index in `directory`, to be updated by nobody else; made if there is none.

        With `rebuild` an index that cannot be read is made anew as well.

        Raises:
            RetrievalError: another process updates it, it is damaged or of another version, or the
                disk refuses.
        """
        try:
            make_directory(directory)
        except OSError as error:
            raise RetrievalError(f"cannot create {directory}: {error.strerror or error}") from error
        try:
            with filelock.FileLock(directory / "writer.lock", timeout=wait_s, mode=0o600):
                if not rebuild:
                    _refuse_former(directory)
                with cls._opened(directory, rebuild) as store:
                    yield store
                    _sweep(directory, store.manifest())
        except filelock.Timeout:
            raise RetrievalError(
                f"another process is updating the index in {directory}: wait until it is done"
            ) from None

    @classmethod
    def _opened(cls, directory: Path, rebuild: bool) -> "SqliteStore":
        try:
            if not (directory / _FILE).exists():
                create(directory / _FILE).close()  # its log has the mode that it has
            store = cls(directory, "rwc")
            # Deleted text is overwritten; a committed change survives a loss of power.
            for setting in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
                store.run(f"PRAGMA {setting}")
            store.run("PRAGMA foreign_keys = ON")
            store.connection.create_function("spaced", 1, spaced, deterministic=True)
            if not store.exists():
                store._create()
            if rebuild and store.run("PRAGMA quick_check(1)") != [("ok",)]:
                raise RetrievalError("damaged")
        except OSError as error:
            raise RetrievalError(
                f"cannot write {directory / _FILE}: {error.strerror or error}"
            ) from error
        except RetrievalError:
            if not rebuild:
                raise
            for path in directory.glob(f"{_FILE}*"):
                path.unlink()
            return cls._opened(directory, rebuild=False)
        return store

    def _create(self) -> None:
        try:
            self.connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise self.explained(error) from error

    def exists(self) -> bool:
        """As `Store.exists`."""
        ((found,),) = self.run("PRAGMA user_version")
        if found not in (0, FORMAT):  # it is 0 in an empty file
            raise other_format(self.where, f"format {found}", self.options)
        return bool(found)

    def open_search(self, manifest: Manifest) -> None:
        """As `Store.open_search`."""
        if manifest.chunks:
            self._nearest = self._mapped(manifest) or self._built(manifest)

    def search(
        self, vector: Vectors, words: Sequence[str], k: int, by: Search
    ) -> list[tuple[float, float, Chunk]]:
        """As `Store.search`."""
        pool = k if by == "dense" else max(4 * k, LEAST_POOL)
        cosines = {} if by == "words" else dict(nearest.search(self._nearest, vector, pool))
        worded = [] if by == "dense" else self._with_words(words, pool, filtered=by == "hybrid")
        fused: dict[int, float] = {}
        for ranking in (list(cosines), worded):
            for rank, number in enumerate(ranking, start=1):
                fused[number] = fused.get(number, 0.0) + 1 / (FUSION + rank)
        best = heapq.nlargest(k, fused, key=lambda n: (fused[n], cosines.get(n, -1.0)))
        return [
            (fused[n], cosines.get(n) or self._cosine(n, vector), chunk)
            for n, chunk in self.chunks(best).items()
        ]

    def _with_words(self, words: Sequence[str], k: int, *, filtered: bool) -> list[int]:
        """The ids of `k` chunks by their words, best first."""
        # To count what matches takes a thirtieth of the time of ranking it.
        counts = {word: self._matching("count(*)", f'"{word}"')[0][0] for word in words}
        known = sorted(filter(counts.__getitem__, words), key=counts.__getitem__)
        if not known:
            return []
        within = accumulate(counts[word] for word in known)
        rare = [word for word, number in zip(known, within, strict=True) if number <= FREQUENT]
        finding, how = (rare, " OR ") if rare else (known[:2], " AND ")
        match = "(" + how.join(f'"{word}"' for word in finding) + ")"
        found = {n: -rank for n, rank in self._matching("rowid, rank", match)}
        scores, times = dict(found), Counter[int]()
        for word in known:
            both = f'{match} AND "{word}"'
            if word in finding:
                times.update(number for (number,) in self._matching("rowid", both))
                continue
            for number, rank in self._matching("rowid, rank", both):
                if number in found:
                    scores[number] += -rank - found[number]  # a rank is a sum over words
                    times[number] += 1
        best = heapq.nsmallest(k, scores, key=lambda number: (-scores[number], number))
        if not filtered:
            return best
        least = scores[best[0]] / 2
        return [n for n in best if scores[n] >= least and 2 * times[n] >= len(words)]

    def _matching(self, columns: str, match: str) -> list[tuple[Any, ...]]:
        sql = f"SELECT {columns} FROM words WHERE words MATCH ? ORDER BY rowid LIMIT ?"
        return self.run(sql, match, 2 * FREQUENT)

    def _cosine(self, number: int, vector: Vectors) -> float:
        ((stored,),) = self.run(
            "SELECT vector FROM vectors JOIN chunks USING (digest) WHERE id = ? "
            "AND fingerprint = (SELECT fingerprint FROM manifest)",
            number,
        )
        return float(np.frombuffer(stored, dtype=np.float32) @ vector)

    def prepare_search(self, manifest: Manifest) -> None:
        """Write the vectors of a snapshot as they are searched, before it is the valid one."""
        self.run("DELETE FROM mapped")
        if manifest.chunks:
            path = _nearest_file(self.where, manifest)
            temporary = path.with_suffix(".tmp")
            try:
                create(temporary).close()
                nearest.write(self._built(manifest), temporary)
                with temporary.open("rb+") as file:
                    os.fsync(file.fileno())
                self.run("INSERT INTO mapped VALUES (?)", temporary.stat().st_size)
                temporary.replace(path)
            except OSError as error:
                raise RetrievalError(f"cannot write {path}: {error.strerror or error}") from error

    def explained(self, error: Exception) -> RetrievalError:
        """As `Store.explained`."""
        path = self.where / _FILE
        if isinstance(error, sqlite3.OperationalError):
            full = shutil.disk_usage(self.where).free < _LEAST_FREE
            return RetrievalError(f"cannot use {path}: {'the disk is full' if full else error}")
        return RetrievalError(
            f"{path} is damaged ({error}): make the index anew with dragonrt index "
            f"DIR{self.options} --rebuild"
        )

    def _mapped(self, manifest: Manifest) -> Any:
        """What is searched, from its file; None if that is missing or not whole."""
        path = _nearest_file(self.where, manifest)
        try:
            # FAISS would read beyond the end of a file that was cut off.
            whole = self.run("SELECT bytes FROM mapped") == [(path.stat().st_size,)]
            return nearest.restore(path) if whole else None
        except (OSError, RuntimeError):
            return None

    def _built(self, manifest: Manifest) -> Any:
        """What is searched, from the vectors of a snapshot."""
        order = list(self.ids().values())
        rows = {number: row for row, number in enumerate(order)}
        vectors = np.empty((len(order), manifest.dimension), dtype=np.float32)
        found = self.connection.execute(
            "SELECT id, vector FROM chunks JOIN vectors USING (digest) WHERE fingerprint = ?",
            (manifest.fingerprint,),
        )
        for number, vector in found:
            vectors[rows[number]] = np.frombuffer(vector, dtype=np.float32)
        return nearest.build(vectors, np.array(order, dtype=np.int64))


def _nearest_file(directory: Path, manifest: Manifest) -> Path:
    return directory / f"nearest-{manifest.snapshot}.faiss"


def _options(directory: Path) -> str:
    return f" --index {shlex.quote(str(directory))}"


def _refuse_former(directory: Path) -> None:
    if (directory / "manifest.json").exists() and not (directory / _FILE).exists():
        raise other_format(directory, "a former format", _options(directory))


def _sweep(directory: Path, valid: Manifest | None) -> None:
    """Delete what former formats, former snapshots and interrupted updates left behind."""
    for path in [p for pattern in _FORMER for p in directory.glob(pattern)]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    for path in directory.glob("nearest-*"):
        if valid is None or path != _nearest_file(directory, valid):
            with suppress(OSError):  # mapped by a reader on Windows: the next update's turn
                path.unlink()
