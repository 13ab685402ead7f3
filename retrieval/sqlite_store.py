"""An index in a directory: one SQLite file, read by many processes and written by one.

`index.sqlite` has the files, chunks, their places, words and vectors, with a write-ahead log. The
file `writer.lock` is locked during updates, and `kv/` has stored KV (see `kv_store`). A reader has
all vectors in memory, where FAISS finds the nearest ones exactly.
"""

import logging
import shlex
import shutil
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import faiss
import filelock
import numpy as np
from typing_extensions import override

from . import RetrievalError
from .chunking import space_cjk
from .embedding import Vectors
from .files import create, make_directory, make_private, network_drive
from .store import FORMAT, FREQUENT, TABLES, Manifest, Store

log = logging.getLogger(__name__)

_FILE = "index.sqlite"
_LEAST_FREE = 2**20  # bytes, below which SQLite has various errors
_DATABASE = (_FILE, f"{_FILE}-*")
_OURS = (*_DATABASE, "writer.lock", "kv", "kv/*/", "kv/*/*.safetensors")

_ADD = """INSERT INTO words (rowid, title, text, about)
    VALUES (new.id, spaced(new.title), spaced(new.text), spaced(new.about));"""
_DELETE = """INSERT INTO words (words, rowid, title, text, about)
    VALUES ('delete', old.id, spaced(old.title), spaced(old.text), spaced(old.about));"""
_SCHEMA = f"""
BEGIN;
{TABLES.format(key="INTEGER PRIMARY KEY", blob="BLOB", clustered=" WITHOUT ROWID")}
CREATE VIRTUAL TABLE words USING fts5 (
    title, text, about, content = '', tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE TRIGGER chunk_added AFTER INSERT ON chunks BEGIN
    {_ADD}
END;
CREATE TRIGGER chunk_gone AFTER DELETE ON chunks BEGIN
    {_DELETE}
END;
CREATE TRIGGER chunk_described AFTER UPDATE OF about ON chunks BEGIN
    {_DELETE}
    {_ADD}
END;
PRAGMA user_version = {FORMAT};
COMMIT;
"""


class SqliteStore(Store):
    """The tables of an index in an SQLite file in a directory; Store has the methods."""

    def __init__(self, directory: Path, mode: str = "ro") -> None:
        """Open the index in `directory` for reading; use `writing` to change it."""
        self.where: Path = directory
        self.options = f" --index {shlex.quote(str(directory))}"
        path = directory / _FILE
        if mode == "ro" and not path.exists():
            raise self.missing()
        if make_private((directory, *(p for name in _OURS for p in directory.glob(name)))):
            log.warning("others could read the index in %s: now only its owner can", directory)
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        with self.explaining():
            super().__init__(sqlite3.connect(uri, uri=True, check_same_thread=False))

    @classmethod
    @contextmanager
    def writing(
        cls, directory: Path, rebuild: bool, wait_s: float = 0.0
    ) -> Iterator["SqliteStore"]:
        """Return a context of the index, open for this writer alone; create it if it is missing.

        `rebuild` replaces an unreadable index. RetrievalError if others write for `wait_s` seconds.
        """
        try:
            make_directory(directory)
            place = directory / "writer.lock"
            lock = filelock.FileLock(place, timeout=wait_s, mode=0o600).acquire()
        except filelock.Timeout:
            raise RetrievalError(
                f"another process is updating the index in {directory}: wait until it is done"
            ) from None
        except OSError as error:
            raise RetrievalError(f"cannot use {directory}: {error.strerror or error}") from error
        with lock, cls._opened(directory, rebuild) as store:
            yield store
            for path in directory.glob("nearest-*.faiss"):  # of former versions
                path.unlink(missing_ok=True)

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
            store.connection.create_function("spaced", 1, space_cjk, deterministic=True)
            if not store.exists():
                with store.explaining():
                    store.connection.executescript(_SCHEMA)
            if rebuild and store.run("PRAGMA quick_check(1)") != [("ok",)]:
                raise RetrievalError("damaged")
        except OSError as error:
            raise RetrievalError(
                f"cannot write {directory / _FILE}: {error.strerror or error}"
            ) from error
        except RetrievalError:
            if not rebuild:
                raise
            for path in [found for name in _DATABASE for found in directory.glob(name)]:
                path.unlink()
            return cls._opened(directory, rebuild=False)
        return store

    @override
    def exists(self) -> bool:
        ((found,),) = self.run("PRAGMA user_version")
        if found not in (0, FORMAT):  # it is 0 in an empty file
            raise self.other_format(f"format {found}")
        return bool(found)

    @override
    def read(self) -> Manifest:
        manifest = super().read()
        sql = "SELECT digest, vector FROM vectors WHERE fingerprint = ?"
        vectors, ids = dict(self.run(sql, manifest.fingerprint)), self.ids_by_digest()
        together = b"".join(map(vectors.__getitem__, ids))
        self._vectors = np.frombuffer(together, np.float32).reshape(len(ids), manifest.dimension)
        self._ids = list(ids.values())
        self._rows = {number: row for row, number in enumerate(self._ids)}
        return manifest

    @override
    def nearest(
        self, vector: Vectors, k: int, among: Collection[int] | None = None
    ) -> dict[int, float]:
        ids = self._ids if among is None else [*among]
        if not ids:
            return {}
        own = slice(None) if among is None else [self._rows[number] for number in ids]
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)  # one question is no work for several: the others would spin
        try:
            cosines, rows = faiss.knn(
                vector[None], self._vectors[own], min(k, len(ids)), faiss.METRIC_INNER_PRODUCT
            )
        finally:
            faiss.omp_set_num_threads(threads)
        return {ids[row]: float(each) for row, each in zip(rows[0], cosines[0], strict=True)}

    @override
    def counts(self, words: Sequence[str]) -> dict[str, int]:
        sql = "SELECT count(*) FROM words WHERE words MATCH ?"
        return {word: self.run(sql, f'"{word}"')[0][0] for word in words}

    @override
    def chunks_with(self, words: Sequence[str], among: Collection[int] | None = None) -> list[int]:
        match = " AND ".join(f'"{word}"' for word in words)
        # Without "+" the text would be searched anew for each of the chunks.
        own = "" if among is None else f"AND +rowid IN ({', '.join(map(str, among))})"
        sql = f"SELECT rowid FROM words WHERE words MATCH ? {own} ORDER BY rowid LIMIT ?"
        most = 2 * FREQUENT if among is None else -1
        return [number for (number,) in self.run(sql, match, most)]

    @override
    def explained(self, error: Exception) -> RetrievalError:
        path = self.where / _FILE
        if isinstance(error, sqlite3.OperationalError):
            why = str(error)
            if shutil.disk_usage(self.where).free < _LEAST_FREE:
                why = "the disk is full"
            elif drive := network_drive(self.where):
                why += f"; SQLite needs locks that {drive} may lack: --index DIR on a local disk"
            return RetrievalError(f"cannot use {path}: {why}")
        return RetrievalError(
            f"{path} is damaged ({error}): rebuild the index with dragonrt index "
            f"DIR{self.options} --rebuild"
        )
