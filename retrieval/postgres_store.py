"""An index in PostgreSQL with pgvector: one corpus for many machines, indexed by one of them.

Texts are stored as separate words, because PostgreSQL's parser reads "E-4312" as a negative number.
The same corpus gives the same hits in PostgreSQL and in SQLite.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from typing_extensions import override

from . import RetrievalError
from .chunking import space_cjk
from .embedding import Vectors
from .store import FORMAT, FREQUENT, TABLES, Manifest, Store

_LOCK = 0x64726167  # of the one writer, among the advisory locks of a database

_KEY = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
_NAMES = "manifest, files, chunks, places, vectors, searched"
_SCHEMA = f"""
CREATE EXTENSION IF NOT EXISTS vector;
{TABLES.format(key=_KEY, blob="BYTEA", clustered="")}
CREATE TABLE IF NOT EXISTS searched (
    chunk BIGINT PRIMARY KEY REFERENCES chunks ON DELETE CASCADE, fingerprint TEXT NOT NULL,
    embedding vector NOT NULL, words tsvector NOT NULL, length INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS searched_words ON searched USING gin (words);
COMMENT ON COLUMN manifest.fingerprint IS 'format {FORMAT}';
"""

_STEM = "quote_literal((tsvector_to_array(to_tsvector('english', word)))[1])"
_COUNTS = f"""
SELECT word, (SELECT count(*) FROM searched WHERE words @@ {_STEM}::tsquery)
FROM unnest(?::text[]) AS asked (word)
"""
_HAVING = f"""
SELECT chunk FROM searched
WHERE words @@ (SELECT string_agg({_STEM}, ' & ')::tsquery FROM unnest(?::text[]) AS asked (word))
AND (?::bigint[] IS NULL OR chunk = ANY(?)) ORDER BY chunk LIMIT ?
"""


class PostgresStore(Store):
    """The tables of an index in a PostgreSQL database with pgvector; Store has the methods."""

    BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    options = " --store URL"
    where = "the database"

    def __init__(self, url: str) -> None:
        """Open the index at postgresql://user@host/database; use `writing` to change it."""
        try:
            import psycopg
        except ImportError as error:
            raise RetrievalError(
                "a PostgreSQL store needs one more library: pip install 'dragonrt[postgres]'"
            ) from error
        with self.explaining():
            super().__init__(psycopg.connect(url))

    @classmethod
    @contextmanager
    def writing(cls, url: str, rebuild: bool, wait_s: float = 0.0) -> Iterator["PostgresStore"]:
        """Return a context of the index, open for this writer alone; create it if it is missing.

        `rebuild` replaces another format's index. RetrievalError if others write for `wait_s` s.
        """
        with cls(url) as store:
            busy = "another process is updating the index: wait until it is done"
            store._locking(f"SELECT pg_advisory_lock({_LOCK})", wait_s, busy)
            try:
                store.exists()
            except RetrievalError:
                if not rebuild:
                    raise
                busy = "other processes read the index in its former format: end them first"
                store._locking(f"DROP TABLE IF EXISTS {_NAMES}", wait_s, busy)
            store.run(_SCHEMA)
            store.flush()
            yield store

    @override
    def exists(self) -> bool:
        # A table of that name without a fingerprint is another program's.
        found = self.run(
            "SELECT col_description(attrelid, attnum) FROM pg_attribute "
            "WHERE attrelid = to_regclass('manifest') AND attname = 'fingerprint'"
        )
        if found and found != [(f"format {FORMAT}",)]:
            raise self.other_format(found[0][0] or "a former format")
        return bool(found)

    @override
    def nearest(
        self, vector: Vectors, k: int, among: Collection[int] | None = None
    ) -> dict[int, float]:
        own = None if among is None else list(among)
        found = "SELECT chunk, -(embedding <#> ?::vector) FROM searched"
        sql = f"{found} WHERE ?::bigint[] IS NULL OR chunk = ANY(?) ORDER BY 2 DESC, 1 LIMIT ?"
        return dict(self.run(sql, _literal(vector), own, own, k))

    @override
    def counts(self, words: Sequence[str]) -> dict[str, int]:
        return dict(self.run(_COUNTS, list(words)))

    @override
    def chunks_with(self, words: Sequence[str], among: Collection[int] | None = None) -> list[int]:
        own = None if among is None else list(among)
        most = 2 * FREQUENT if own is None else None
        return [number for (number,) in self.run(_HAVING, list(words), own, own, most)]

    def _locking(self, sql: str, wait_s: float, busy: str) -> None:
        """Run a statement that takes a lock; RetrievalError `busy` if others hold it too long."""
        from psycopg.errors import LockNotAvailable

        self.run("SELECT set_config('lock_timeout', ?, false)", f"{1000 * wait_s + 1:.0f}")
        try:
            self.connection.execute(sql)
        except LockNotAvailable:
            raise RetrievalError(busy) from None
        self.run("RESET lock_timeout")

    @override
    def run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return super().run(sql.replace("?", "%s"), *values)

    @override
    def prepare_search(self, manifest: Manifest, changed: Collection[int]) -> None:
        self.run(
            "DELETE FROM searched WHERE fingerprint <> ? OR chunk = ANY(?)",
            manifest.fingerprint,
            list(changed),
        )
        new = self.run(
            "SELECT id, title, text, about, vector FROM chunks JOIN vectors USING (digest) "
            "WHERE fingerprint = ? AND id NOT IN (SELECT chunk FROM searched)",
            manifest.fingerprint,
        )
        for number, *texts, vector in new:
            words = re.findall(r"[^\W_]+", space_cjk(" ".join(texts)))
            self.run(
                "INSERT INTO searched VALUES (?, ?, ?::vector, to_tsvector('english', ?), ?)",
                number,
                manifest.fingerprint,
                _literal(np.frombuffer(vector, dtype=np.float32)),
                " ".join(words),
                len(words),
            )

    @override
    def explained(self, error: Exception) -> RetrievalError:
        line = str(error).strip().split("\n", 1)[0]
        return RetrievalError(f"the PostgreSQL store cannot be used: {line}")


def _literal(vector: Vectors) -> str:
    return f"[{','.join(map(repr, vector.tolist()))}]"
