"""Real files and the system's own notices; nothing here depends on how long they take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Event, Thread

import pytest

from retrieval import Embedder, Index, RetrievalError, following
from retrieval.following import changes

pytestmark = pytest.mark.slow
pytest.importorskip("watchfiles")
PATIENCE_S = 60


@contextmanager
def watched(documents: list[Path], index: Path) -> Iterator[Callable[[], set[Path]]]:
    stop, batches = Event(), Queue[set[Path]]()

    def run() -> None:
        for number, batch in enumerate(changes(documents, index)):
            if stop.is_set():
                return
            if batch or number == 0:
                batches.put(batch)

    thread = Thread(target=run)
    thread.start()
    try:
        assert batches.get(timeout=PATIENCE_S) == set()
        yield lambda: batches.get(timeout=PATIENCE_S)
    finally:
        stop.set()
        thread.join()


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_SETTLED_MS", 50)


def until(take: Callable[[], set[Path]], *expected: Path) -> None:
    """Take batches until all of `expected` were in one; nothing else may be in any."""
    found: set[Path] = set()
    while found != set(expected):
        found |= take()
        assert found <= set(expected)


def test_every_kind_of_change_is_noticed(
    tmp_path: Path, documents: Path, embedder: Embedder
) -> None:
    where = documents / "index"
    Index.update(where, documents, embedder)
    with watched([documents], where) as take:
        (documents / "bus.txt").write_text("The bus is yellow.")
        until(take, documents / "bus.txt")
        assert Index.update(where, documents, embedder).added == 1  # writes the index: no notice
        (documents / "bus.txt").rename(documents / "coach.txt")
        until(take, documents / "bus.txt", documents / "coach.txt")
        (documents / "picture.png").write_bytes(b"\x89PNG")
        (documents / "travel" / "flight.txt").unlink()
        until(take, documents / "travel" / "flight.txt")


def test_a_named_file_that_is_replaced_is_noticed(tmp_path: Path, documents: Path) -> None:
    named = documents / "ferry.txt"
    with watched([named], tmp_path / "index") as take:
        (documents / "other.txt").write_text("Not asked for.")
        (documents / "new").write_text("The ferry leaves at ten.")
        (documents / "new").replace(named)
        until(take, named)


def test_documents_that_are_gone_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(RetrievalError):
        next(changes([tmp_path / "gone" / "a.txt"], tmp_path))
