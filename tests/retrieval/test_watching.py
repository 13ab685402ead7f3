"""Stamps of files, by which a change of the documents is noticed."""

from pathlib import Path

import pytest

from retrieval import Embedder, Index, RetrievalError
from retrieval.following import Order, UpdateOptions, stamps

OPTIONS = UpdateOptions(words=64, url=None, exclude=(), largest=1e9)


def order(index: Path, *documents: Path) -> Order:
    return Order(
        [str(path) for path in documents], str(index), "words", watch=True, options=OPTIONS
    )


def test_every_kind_of_change_is_noticed(documents: Path, embedder: Embedder) -> None:
    where = documents / "index"
    watched = order(where, documents)
    before = stamps(watched)
    Index.update(where, documents, embedder)
    (documents / "picture.png").write_bytes(b"\x89PNG")
    assert stamps(watched) == before, "neither is a document"
    (documents / "bus.txt").write_text("The bus is yellow.")
    added = stamps(watched)
    assert added.keys() - before.keys() == {"bus.txt"}
    (documents / "bus.txt").rename(documents / "coach.txt")
    assert stamps(watched).keys() ^ added.keys() == {"bus.txt", "coach.txt"}
    (documents / "travel" / "flight.txt").unlink()
    assert "travel/flight.txt" not in stamps(watched)


def test_a_named_file_that_is_replaced_is_noticed(documents: Path, tmp_path: Path) -> None:
    named = documents / "ferry.txt"
    watched = order(tmp_path / "index", named)
    before = stamps(watched)
    (documents / "other.txt").write_text("Not asked for.")
    assert stamps(watched) == before
    (documents / "new").write_text("The ferry leaves at ten.")
    (documents / "new").replace(named)
    assert stamps(watched) != before


def test_documents_that_are_gone_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RetrievalError):
        stamps(order(tmp_path, tmp_path / "gone" / "a.txt"))
