from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from retrieval import Chunk, Embedder, Hit, Index, Retriever, Search
from retrieval.index import NEAR, near

from .conftest import WordHashes


@pytest.fixture
def index(tmp_path: Path, documents: Path, embedder: Embedder) -> Index:
    Index.update(tmp_path / "index", documents, embedder)
    return Index.open(tmp_path / "index")


def test_hits_come_by_cosine(index: Index, embedder: Embedder) -> None:
    hits = Retriever(index, embedder).retrieve("Which gate for my flight?", 2)
    assert hits[0].chunk.source == "travel/flight.txt"
    text = embedder.encode([hits[0].chunk.text])[0]
    cosine = text @ embedder.encode_question("Which gate for my flight?")
    assert hits[0].score == pytest.approx(cosine, abs=1e-6)
    assert hits[0].score > hits[1].score


def test_nothing_below_the_floor_is_found(index: Index, embedder: Embedder) -> None:
    question, retriever = "Which gate for my flight?", Retriever(index, embedder)
    best, second = retriever.retrieve(question, 2)
    between = (best.score + second.score) / 2
    assert [hit.chunk for hit in retriever.retrieve(question, 2, between)] == [best.chunk]
    assert len(retriever.retrieve(question, 2, second.score)) == 2
    assert retriever.retrieve(question, 2, 1.1) == []


@pytest.mark.parametrize(
    ("orders", "count"),
    [([0.9], 1), ([0.9, 0.9], 2), ([0.9, 0.9 - NEAR / 2], 2), ([0.9, 0.9 - 2 * NEAR], 1), ([], 0)],
)
def test_chunks_are_near_by_what_orders_them(orders: list[float], count: int) -> None:
    chunk = Chunk("", "", "", "", 0, 0)
    hits = [Hit(chunk, cosine, order) for cosine, order in enumerate(orders)]
    assert near(hits) == hits[:count]


def test_a_near_second_chunk_is_read_and_no_third(tmp_path: Path, embedder: Embedder) -> None:
    for name, text in {"a": "The cat ate.", "b": "The cat sat.", "c": "The cat ran."}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    Index.update(tmp_path / "index", [tmp_path / f"{name}.txt" for name in "abc"], embedder)
    retriever = Retriever(Index.open(tmp_path / "index"), embedder)
    for question, count in (("What did the cat do?", 2), ("Who ate?", 1), ("Who sat or ran?", 2)):
        assert retriever.retrieve(question, None) == retriever.retrieve(question, 2)[:count]


def test_an_empty_index_does_not_load_the_model(tmp_path: Path, hashes: WordHashes) -> None:
    (tmp_path / "empty").mkdir()
    Index.update(tmp_path / "index", tmp_path / "empty", hashes.embedder())
    retriever = Retriever(Index.open(tmp_path / "index"), hashes.embedder())
    assert retriever.retrieve("ferry", 2) == []
    assert hashes.encoded == []


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Invoices that only their numbers tell apart, and one text about something else."""
    folder, where = (tmp_path_factory.mktemp(name) for name in ("numbered", "index"))
    for number in range(300):
        (folder / f"{number}.txt").write_text(f"Invoice INV-{7000 + number} was paid in full.")
    (folder / "lake.txt").write_text("The lake is cold, 漢字.")
    Index.update(where, folder, WordHashes().embedder())
    return Index.open(where)


@pytest.mark.parametrize("frequent", [1000, 5])
@pytest.mark.parametrize("search", ["words", "hybrid"])
def test_words_find_what_vectors_cannot_tell_apart(
    numbered: Index,
    hashes: WordHashes,
    monkeypatch: pytest.MonkeyPatch,
    search: Search,
    frequent: int,
) -> None:
    monkeypatch.setattr("retrieval.search.FREQUENT", frequent)
    blind = replace(
        hashes.embedder(), questions=lambda texts: hashes(["invoice paid"] * len(texts))
    )
    found = Retriever(numbered, blind, search=search).retrieve("Was invoice INV-7123 paid?", 2)
    hits = {hit.chunk.source: hit for hit in found}
    cosine = blind.encode([hits["123.txt"].chunk.text])[0] @ blind.encode_question("")
    assert hits["123.txt"].score == pytest.approx(cosine, abs=1e-6)
    dense = Retriever(numbered, blind, search="dense").retrieve("Was invoice INV-7123 paid?", 2)
    assert "123.txt" not in [hit.chunk.source for hit in dense]


def test_a_common_word_does_not_beat_the_meaning(numbered: Index, embedder: Embedder) -> None:
    question = "Is a full paid bath cold at the lake?"
    searches: tuple[Search, ...] = ("hybrid", "dense")
    for search in searches:
        (hit,) = Retriever(numbered, embedder, search=search).retrieve(question, 1)
        assert hit.chunk.source == "lake.txt"


@pytest.mark.parametrize("question", ["", "?", '"AND OR NOT', "a* NEAR(b)", "the of", "漢", "zzz"])
def test_any_question_can_be_searched_for(
    numbered: Index, embedder: Embedder, question: str
) -> None:
    searches: tuple[Search, ...] = get_args(Search)
    for search in searches:
        hits = Retriever(numbered, embedder, search=search).retrieve(question, 3)
        assert len(hits) <= 3
        if search == "words" and question == "漢":
            assert [hit.chunk.source for hit in hits] == ["lake.txt"]


def test_frequent_words_count_in_what_the_rare_ones_find(
    tmp_path: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "pumps"
    folder.mkdir()
    for number in range(60):
        subject = "pump " * (number % 3) + "error " * (number % 2) + "filter " * (number < 6)
        (folder / f"{number}.txt").write_text(f"{subject}{number}")
    Index.update(tmp_path / "index", folder, embedder)
    retriever = Retriever(Index.open(tmp_path / "index"), embedder, search="words")
    whole = retriever.retrieve("pump error filter", 5)
    assert len(whole) == 5
    monkeypatch.setattr("retrieval.search.FREQUENT", 10)
    assert retriever.retrieve("pump error filter", 5) == whole
    assert all("pump" in hit.chunk.text for hit in retriever.retrieve("pump error", 5))


def test_a_long_question_finds_by_its_rarest_words(tmp_path: Path, hashes: WordHashes) -> None:
    rare, common = (
        " ".join(f"{kind}{n}" for n in range(count))
        for kind, count in (("rare", 20), ("often", 40))
    )
    folder = tmp_path / "letters"
    folder.mkdir()
    for number in range(60):
        (folder / f"{number}.txt").write_text(f"{number} {common}")
    (folder / "meant.txt").write_text(rare)
    blind = replace(hashes.embedder(), questions=lambda texts: hashes([common] * len(texts)))
    Index.update(tmp_path / "index", folder, blind)
    found = Retriever(Index.open(tmp_path / "index"), blind, search="words")
    hits = found.retrieve(f"{common} {rare}", 2)
    assert "meant.txt" in [hit.chunk.source for hit in hits]
