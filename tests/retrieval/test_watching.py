"""Stamps of files, by which a change of the documents is noticed, and when it is read."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from subprocess import Popen
from threading import Event
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from retrieval import Embedder, Index, RetrievalError
from retrieval.following import (
    Changes,
    Order,
    Stamps,
    UpdateOptions,
    between_answers,
    found_files,
    stamps,
)
from retrieval.reader import Reader

from .conftest import Shelf

OPTIONS = UpdateOptions(words=64, url=None, exclude=(), largest=1e9)


def order(index: Path, *documents: Path) -> Order:
    return Order(
        [str(path) for path in documents], str(index), "words", watch=True, options=OPTIONS
    )


def test_every_kind_of_change_is_noticed(documents: Path, embedder: Embedder) -> None:
    where = documents / "index"
    watched = order(where, documents)
    before = stamps(found_files(watched))
    Index.update(where, documents, embedder)
    (documents / "picture.png").write_bytes(b"\x89PNG")
    assert stamps(found_files(watched)) == before, "neither is a document"
    (documents / "bus.txt").write_text("The bus is yellow.")
    added = stamps(found_files(watched))
    assert added.keys() - before.keys() == {"bus.txt"}
    (documents / "bus.txt").rename(documents / "coach.txt")
    assert stamps(found_files(watched)).keys() ^ added.keys() == {"bus.txt", "coach.txt"}
    (documents / "travel" / "flight.txt").unlink()
    assert "travel/flight.txt" not in stamps(found_files(watched))


def test_a_named_file_that_is_replaced_is_noticed(documents: Path, tmp_path: Path) -> None:
    named = documents / "ferry.txt"
    watched = order(tmp_path / "index", named)
    before = stamps(found_files(watched))
    (documents / "other.txt").write_text("Not asked for.")
    assert stamps(found_files(watched)) == before
    (documents / "new").write_text("The ferry leaves at ten.")
    (documents / "new").replace(named)
    assert stamps(found_files(watched)) != before


def test_documents_that_are_gone_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RetrievalError):
        found_files(order(tmp_path, tmp_path / "gone" / "a.txt"))


def looks(files: list[Stamps], every_s: float, update_s: float) -> list[int]:
    """Return which of the looks at these files an update follows that takes so long."""
    changes, updates, at_s = Changes(), list[int](), 0.0
    for number, now in enumerate(files):
        at_s += every_s
        if changes.due(now, at_s):
            updates.append(number)
            changes.record_update(at_s, at_s := at_s + update_s)
    return updates


def test_a_change_is_read_once_it_has_settled() -> None:
    nothing, a, b = Stamps(), Stamps({"a": (1,)}), Stamps({"a": (2,)})
    assert looks([*[a] * 200, b, b, b], 0.5, 0.0) == [0, 201]
    assert looks([a, a, nothing, nothing, nothing], 0.5, 0.0) == [0, 3], "it is gone"
    assert looks([nothing, nothing], 0.5, 0.0) == [0]


def test_a_log_that_grows_all_the_time_is_read_seldom() -> None:
    grown: list[Stamps] = [{"log": (size,)} for size in range(1200)]  # ten minutes
    updates = looks(grown, 0.5, 1.0)
    assert 8 <= len(updates) <= 10
    slow: list[Stamps] = [{"log": (size // 2,)} for size in range(1200)]
    assert len(looks(slow, 0.5, 1.0)) <= 600 * 0.02 / 1.0 + 2


def test_other_files_do_not_wait_for_a_log_that_grows() -> None:
    files: list[Stamps] = [{"log": (size,), "note": (size // 50,)} for size in range(100)]
    assert looks(files, 0.5, 0.1) == [0, 51]


def test_a_new_file_that_took_long_is_read_again_at_once() -> None:
    files = [Stamps(), *[Stamps({"a": (1,)})] * 3, *[Stamps({"a": (2,)})] * 3]
    assert looks(files, 0.5, 60.0) == [0, 2, 5]


@pytest.mark.parametrize("answers", [False, True])
def test_embedding_pauses_while_an_answer_is_open(
    monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    clock, waits = count(step=1.0), list[float]()

    class Idle(Event):
        @override
        def wait(self, timeout: float | None = None) -> bool:
            if timeout is not None and not self.is_set():
                waits.append(timeout)
            return True

    def documents(texts: Sequence[str]) -> Any:
        return np.array([[float(text)] for text in texts], np.float32)

    monkeypatch.setattr("retrieval.following.time.monotonic", lambda: next(clock))
    idle = Idle()
    if not answers:
        idle.set()
    vectors = between_answers(documents, idle, [str(number) for number in range(20)])
    assert vectors[:, 0].tolist() == [*range(20)]
    assert waits == [50.0] * 3 * answers


def test_a_reader_is_used_for_many_updates(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[Any]()

    def counted(*command: Any, **how: Any) -> Any:
        started.append(command)
        return Popen(*command, **how)

    monkeypatch.setattr("retrieval.reader.subprocess.Popen", counted)
    with Reader() as reader:
        for number in range(3):
            (shelf.documents / "ferry.txt").write_text(f"Ferry {number} leaves at nine.")
            found = found_files(order(shelf.where, shelf.documents))
            assert shelf.update(found, reader=reader).embedded == (4 if number == 0 else 1)
    assert len(started) == 1
