"""A process killed at any write leaves the old index or the new one, and the next update heals.

Every statement, commit, rename and removal of an update is a crash point: the index directory is
copied as it stands before it, which is what a kill at that moment would have left on disk; and
once more with the write-ahead log cut off, as a kill within SQLite's own writes leaves it.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrieval import Embedder, Index, KvStore, RetrievalError, store
from retrieval import index as updating
from retrieval.sqlite_store import SqliteStore

from .conftest import WordHashes

QUESTIONS = ("When does the ferry leave?", "Which museum?", "yellow bus", "gate of my flight")


def store_kv(where: Path) -> None:
    """Store KV of every chunk."""
    kv = KvStore(where, "model")
    for chunk in Index.open(where).chunks():
        kv.write(chunk.digest, {"keys": np.frombuffer(chunk.text.encode(), np.uint8)})


def answers(where: Path, embedder: Embedder) -> object:
    opened = Index.open(where)
    return [
        [(hit.chunk, round(hit.score, 6)) for hit in opened.search(vector, 5)]
        for vector in map(embedder.encode_question, QUESTIONS)
    ]


class CrashPoints:
    """Copies of a directory at every point at which a kill could hit its writer."""

    def __init__(self, directory: Path, into: Path, patch: pytest.MonkeyPatch) -> None:
        self.copies: list[Path] = []
        self._directory = directory
        self._into = into
        patch.setattr(store, "_DURABLE_EVERY_S", 0.0)  # a kill then loses no finished file
        for owner, names in (
            (SqliteStore, ("run", "flush")),
            (Path, ("replace", "unlink")),
            (os, ("fsync", "rmdir")),
        ):
            for name in names:
                patch.setattr(owner, name, self._around(getattr(owner, name)))

    def _around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._copy()
            return call(*args, **kwargs)

        return watched

    def _copy(self) -> None:
        copy = self._into / str(len(self.copies))
        self.copies.append(copy)
        shutil.copytree(self._directory, copy)


def torn(copy: Path, into: Path) -> Path | None:
    """A copy whose write-ahead log a kill has cut in the middle of a write, if it has one."""
    log = copy / "index.sqlite-wal"
    if not log.exists() or log.stat().st_size == 0:
        return None
    shutil.copytree(copy, into)
    data = log.read_bytes()
    (into / log.name).write_bytes(data[: len(data) * 2 // 3] + bytes(len(data) // 5))
    (into / "index.sqlite-shm").unlink(missing_ok=True)
    return into


@pytest.mark.slow
def test_a_kill_at_any_point_leaves_the_old_or_the_new_index(
    tmp_path: Path, documents: Path, hashes: WordHashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = hashes.embedder()
    where = tmp_path / "index"
    Index.update(where, documents, embedder)
    store_kv(where)
    old = answers(where, embedder)
    (documents / "ferry.txt").write_text("The ferry leaves at ten from the south quay.")
    (documents / "bus.txt").write_text("The bus is yellow.")
    (documents / "museum.md").unlink()
    with monkeypatch.context() as patched:
        points = CrashPoints(where, tmp_path / "crashes", patched)
        Index.update(where, documents, embedder)
    new = answers(where, embedder)
    assert old != new
    assert len(points.copies) > 30

    state = [answers(copy, embedder) for copy in points.copies]
    assert state == sorted(state, key=lambda answer: answer == new), "the change came twice"
    assert all(answer in (old, new) for answer in state)
    assert state[0] == old
    monkeypatch.setattr("os.fsync", lambda _: None)  # no more crashes: be fast
    cut = [torn(copy, tmp_path / "torn" / copy.name) for copy in points.copies]
    assert all(answers(copy, embedder) in (old, new) for copy in cut if copy is not None)
    assert sum(copy is not None for copy in cut) > 20
    for copy in points.copies + [copy for copy in cut if copy is not None]:
        Index.update(copy, documents, embedder)
        assert answers(copy, embedder) == new
        digests = set(Index.open(copy).store.ids_by_digest())
        assert KvStore(copy, "model").stored() < digests, "KV of deleted chunks is deleted"
        left = {path.relative_to(copy).parts[0] for path in copy.rglob("*") if path.is_file()}
        left -= {"index.sqlite-wal", "index.sqlite-shm"}  # they go with the last reader
        assert left == {"index.sqlite", "writer.lock", "kv"}
        assert len(list((copy / "kv" / "model").iterdir())) == 2


def test_a_kill_in_the_first_update_leaves_no_half_index(
    tmp_path: Path, documents: Path, hashes: WordHashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = hashes.embedder()
    where = tmp_path / "index"
    with monkeypatch.context() as patched:
        patched.setattr(updating, "_AT_ONCE", 1)
        points = CrashPoints(where, tmp_path / "crashes", patched)
        Index.update(where, documents, embedder)
    new = answers(where, embedder)
    monkeypatch.setattr("os.fsync", lambda _: None)  # no more crashes: be fast
    embedded_after_a_kill = []
    whole = []
    for copy in points.copies:
        try:
            found = answers(copy, embedder)
        except RetrievalError as error:
            found = str(error).partition(" in ")[0]
        assert found in ("there is no index", new)
        whole.append(found == new)
        report = Index.update(copy, documents, embedder)
        embedded_after_a_kill.append(report.embedded)
        assert answers(copy, embedder) == new
    assert embedded_after_a_kill == sorted(embedded_after_a_kill, reverse=True)
    assert set(embedded_after_a_kill) == {4, 3, 2, 1, 0}
    assert whole == sorted(whole)
    assert set(whole) == {False, True}


def test_a_kill_during_a_rebuild_leaves_the_old_index(
    tmp_path: Path, documents: Path, hashes: WordHashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "index"
    Index.update(where, documents, hashes.embedder("one"))
    with monkeypatch.context() as patched:
        points = CrashPoints(where, tmp_path / "crashes", patched)
        Index.update(where, documents, hashes.embedder("two"), rebuild=True)
    models = [Index.open(copy).manifest.fingerprint for copy in points.copies]
    assert models == sorted(models)
    assert set(models) == {"one", "two"}
