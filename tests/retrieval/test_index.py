"""Updating and searching an index: what it holds, what it costs, whom it refuses."""

import os
import shlex
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest

from retrieval import (
    Embedder,
    Index,
    KvStore,
    Progress,
    Report,
    RetrievalError,
    Retriever,
    Search,
    ingestion,
)
from retrieval import index as updating
from retrieval.ingestion import excluded, index_name
from retrieval.reader import Reader
from retrieval.sqlite_store import SqliteStore

from .conftest import Shelf, WordHashes


def test_every_kind_of_document_is_found(shelf: Shelf) -> None:
    report = shelf.update()
    assert (report.added, report.chunks, report.skipped, report.ignored) == (4, 4, (), ())
    assert shelf.found("Which gate for my flight?") == ["travel/flight.txt"]
    assert shelf.found("Is the museum closed on Mondays?") == ["museum.md"]
    assert shelf.found("Does the hotel keep luggage?") == ["travel/hotel.html"]


def test_a_hit_says_where_its_text_stands(shelf: Shelf) -> None:
    text = " ".join(f"word{i}" for i in range(10)) + " zebra " + "end " * 3
    (shelf.documents / "long.txt").write_text(text)
    shelf.update(words=4)
    hit = shelf.open().search(shelf.embedder.encode_question("zebra"), 1)[0]
    chunk = hit.chunk
    assert "zebra" in chunk.text
    assert text[chunk.start : chunk.end] == chunk.text
    assert chunk.title.startswith("word0 word1")
    assert 0 < hit.score <= 1


def test_chunks_come_in_order_or_the_likeliest_first(shelf: Shelf) -> None:
    for path in shelf.documents.rglob("*.*"):
        os.utime(path, (1, 1))
    for age, (name, length) in enumerate({"new": 12, "old": 12, "older": 4}.items()):
        path = shelf.documents / f"{name}.txt"
        path.write_text(" ".join(f"{name}{i}" for i in range(length)))
        os.utime(path, (10**9 - age,) * 2)
    shelf.update(words=4)
    store = shelf.open().store
    text = " ".join(each.text for each in store.chunks_of("old.txt"))
    assert text == (shelf.documents / "old.txt").read_text()
    assert store.chunks_of("other.txt") == []
    ids = [*store.ids_by_digest(likeliest=True).values()]
    assert {*ids} == {*store.ids_by_digest().values()}
    found = [store.chunks([each])[each].text.split()[0] for each in ids]
    assert [each for each in found if each.startswith(("new", "old"))] == (
        ["new0", "new4", "old0", "new8", "older0", "old4", "old8"]
    )


def test_reading_all_chunks_takes_few_queries(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shelf.documents / "long.txt").write_text(" ".join(f"word{i}" for i in range(100)))
    shelf.update(words=4)
    index, right, queries = shelf.open(), SqliteStore.run, list[str]()

    def run(store: SqliteStore, sql: str, *values: object) -> list[tuple[Any, ...]]:
        queries.append(sql)
        return right(store, sql, *values)

    monkeypatch.setattr(SqliteStore, "run", run)
    read, long = [*index.chunks()], [*index.longer_than(0)]
    assert len(read) == len(long) == len(index) > 25
    assert {each.text for each in read} == {each.text for each in long}
    assert len(queries) < 10


def test_nothing_is_done_twice(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingestion, "_SETTLED_NS", 10**18)
    shelf.update()
    before = (shelf.where / "index.sqlite").stat().st_mtime_ns
    report = shelf.update()
    assert (report.added, report.changed, report.unchanged, report.embedded) == (0, 0, 4, 0)
    assert (shelf.where / "index.sqlite").stat().st_mtime_ns == before


def test_only_new_and_changed_text_costs_and_no_other_name(
    shelf: Shelf, hashes: WordHashes
) -> None:
    shelf.update()
    hashes.encoded.clear()
    (shelf.documents / "ferry.txt").write_text("The ferry leaves at ten.")
    (shelf.documents / "bus.txt").write_text("The bus is yellow.")
    (shelf.documents / "museum.md").unlink()
    report = shelf.update()
    assert (report.added, report.changed, report.deleted, report.unchanged) == (1, 1, 1, 2)
    assert sorted(hashes.encoded) == ["The bus is yellow.", "The ferry leaves at ten."]
    assert "museum.md" not in shelf.found("museum of glass", 10)
    found = [chunk.source for chunk in shelf.open().chunks()]
    assert found == ["bus.txt", "ferry.txt", "travel/flight.txt", "travel/hotel.html"]
    hashes.encoded.clear()
    (shelf.documents / "ferry.txt").rename(shelf.documents / "boat.txt")
    report = shelf.update()
    assert (report.added, report.deleted, hashes.encoded) == (1, 1, [])
    assert shelf.found("When does the ferry leave?") == ["boat.txt"]


def test_a_copy_is_listed_but_embedded_and_found_once(shelf: Shelf, hashes: WordHashes) -> None:
    text = (shelf.documents / "ferry.txt").read_text()
    (shelf.documents / "travel" / "ferry copy.txt").write_text(text)
    report = shelf.update()
    assert (report.added, report.chunks, hashes.encoded.count(text)) == (5, 4, 1)
    hits = shelf.open().search(shelf.embedder.encode_question("ferry"), 10)
    ferry = [hit.chunk for hit in hits if "ferry" in hit.chunk.text]
    assert [chunk.source for chunk in ferry] == ["ferry.txt"]
    (shelf.documents / "ferry.txt").unlink()
    shelf.update()
    assert shelf.found("ferry") == ["travel/ferry copy.txt"]


@pytest.mark.parametrize("by", ["hybrid", "dense", "words"])
def test_equal_chunks_are_found_in_each_document(shelf: Shelf, by: Search) -> None:
    text = "# Lease\n\nThe flat is on Mill Lane.\n\n# Rent\n\nThe rent is {} pounds."
    for version, rent in (("v1", "1,240"), ("v2", "1,310")):
        (shelf.documents / f"lease {version}.md").write_text(text.format(rent))
    shelf.update()
    retriever = Retriever(shelf.open(), shelf.embedder, by)
    for version in ("v1", "v2"):
        hits = retriever.retrieve("Where is the flat?", 1, within=f"lease {version}.md")
        assert [hit.chunk.source for hit in hits] == [f"lease {version}.md"]
        assert "Mill Lane" in hits[0].chunk.text
    assert not retriever.retrieve("Where is the flat?", 1, within="museum.md")[1:]
    assert len(retriever.retrieve("Where is the flat?", 9)) == len(retriever.index) or by == "words"


def test_an_updated_index_equals_a_rebuilt_one(shelf: Shelf, tmp_path: Path) -> None:
    shelf.update()
    (shelf.documents / "a new one.txt").write_text("The bus is yellow.")
    (shelf.documents / "museum.md").unlink()
    shelf.update()
    Index.update(tmp_path / "fresh", shelf.documents, shelf.embedder)
    updated, fresh = shelf.open(), Index.open(tmp_path / "fresh")
    assert list(updated.chunks()) == list(fresh.chunks())
    for question in ("ferry", "bus", "gate of my flight"):
        vector = shelf.embedder.encode_question(question)
        assert updated.search(vector, 10) == fresh.search(vector, 10)


def test_broken_files_are_named_and_the_rest_is_indexed(shelf: Shelf) -> None:
    (shelf.documents / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    (shelf.documents / "broken.docx").write_bytes(b"no archive")
    (shelf.documents / "picture.png").write_bytes(b"\x89PNG")
    for name in (".hidden.txt", "~$lease.docx"):
        (shelf.documents / name).write_text("private")
    (shelf.documents / "program").write_bytes(b"\x7fELF\0\0")
    report = shelf.update()
    assert [name for name, _ in report.skipped] == ["broken.docx", "broken.pdf"]
    assert report.ignored == ("picture.png", "program")
    assert report.other_kinds == ".png (none)"
    assert report.added == report.chunks == 4


def test_texts_of_other_programs_are_read(shelf: Shelf, tmp_path: Path) -> None:
    names = {"README", "notes.org", "settings.json", "yesterday.LOG"}
    folder = tmp_path / "others"
    folder.mkdir()
    for name in names:
        (folder / name).write_text(f"Größe in {name}, äöü" * 100)
    shelf.update(folder)
    assert shelf.open().files().keys() == names


def test_what_is_not_read_of_a_file_is_counted(shelf: Shelf) -> None:
    (shelf.documents / "bird.md").write_text("A bird. ![](data:image/png;base64,iVBORw0KGgo=)")
    assert shelf.update().unread == (("bird.md", "1 picture"),)
    store = shelf.open().store
    assert [*map(store.unread, ("bird.md", "ferry.txt", "gone"))] == ["1 picture", "", ""]


def test_messages_of_a_maildir_are_read(shelf: Shelf, tmp_path: Path) -> None:
    folder = tmp_path / "mail" / "cur"
    folder.mkdir(parents=True)
    message = "From: a@example.org\nTo: b@example.org\nSubject: Bird\n\nThe nest is in tree 19.\n"
    (folder / "1700000000.M1P1.host:2,S").write_text(message)
    shelf.update(tmp_path / "mail")
    (chunk,) = shelf.open().chunks()
    assert (chunk.title, chunk.text.split("\n")[-1]) == ("Bird", "The nest is in tree 19.")


def test_documents_may_be_named_one_by_one(shelf: Shelf) -> None:
    picture = shelf.documents / "picture.png"
    picture.write_bytes(b"\x89PNG")
    report = shelf.update([shelf.documents / "travel", shelf.documents / "ferry.txt", picture])
    assert [name for name, _ in report.skipped] == ["picture.png"]
    found = [chunk.source for chunk in shelf.open().chunks()]
    assert found == ["ferry.txt", "travel/flight.txt", "travel/hotel.html"]


def test_an_index_inside_its_documents_does_not_index_itself(shelf: Shelf) -> None:
    for _ in range(2):
        report = Index.update(shelf.documents / "index", shelf.documents, shelf.embedder)
        assert (report.chunks, report.ignored) == (4, ())


def test_documents_that_are_gone_are_refused_not_deleted(shelf: Shelf) -> None:
    shelf.update()
    for gone in ([shelf.documents / "unmounted"], []):
        with pytest.raises(RetrievalError):
            shelf.update(gone)
    assert len(shelf.open()) == 4


def test_an_empty_directory_makes_an_empty_index(shelf: Shelf, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for _ in range(2):
        assert shelf.update(empty).chunks == 0
        assert shelf.found("ferry", 3) == []
    shelf.update()
    assert shelf.found("ferry") == ["ferry.txt"]
    assert shelf.update(empty).deleted == 4
    assert len(shelf.open()) == 0


def test_another_embedding_model_is_refused_with_the_remedy(
    shelf: Shelf, hashes: WordHashes
) -> None:
    paths = [
        (shelf.documents / "ferry.txt").rename(shelf.documents / "the ferry.txt"),
        shelf.documents / "museum.md",
    ]
    shelf.update(paths)
    other = hashes.embedder("words-2")
    with pytest.raises(RetrievalError) as caught:
        shelf.update(embedder=other)
    command = str(caught.value).rpartition("rebuild it with dragonrt index ")[2]
    assert shlex.split(command) == [*map(str, paths), "--index", str(shelf.where), "--rebuild"]
    assert shelf.open().manifest.fingerprint == "words-1"
    with pytest.raises(RetrievalError):
        Retriever(shelf.open(), other)
    with pytest.raises(RetrievalError):  # of another dimension
        shelf.open().search(np.ones(3, dtype=np.float32), 1)
    hashes.encoded.clear()
    report = shelf.update(embedder=other, rebuild=True)
    assert (report.added, len(hashes.encoded)) == (4, 4)
    assert shelf.open().manifest.fingerprint == "words-2"


@pytest.mark.parametrize("kept", [None, 600, 5000])
def test_a_later_or_damaged_index_is_refused_and_rebuilt(shelf: Shelf, kept: int | None) -> None:
    shelf.update()
    path = shelf.where / "index.sqlite"
    if kept is None:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
    else:
        path.write_bytes(path.read_bytes()[:kept] + b"torn")
    for act in (lambda: shelf.open(), lambda: shelf.update()):
        with pytest.raises(RetrievalError) as caught:
            act()
        assert str(caught.value).endswith(f"--index {shelf.where} --rebuild")
        assert "\n" not in str(caught.value)
    shelf.update(rebuild=True)
    assert shelf.found("ferry") == ["ferry.txt"]


def test_a_second_writer_gets_one_line(shelf: Shelf) -> None:
    def second(_: Progress) -> None:
        with pytest.raises(RetrievalError) as caught:
            shelf.update()
        assert "\n" not in str(caught.value)

    shelf.update(progress=second)
    assert len(shelf.open()) == 4


def test_a_reader_keeps_its_snapshot_and_old_files_go(shelf: Shelf) -> None:
    shelf.update()
    (shelf.where / "nearest-1.faiss").write_bytes(b"vectors")
    reader = shelf.open()
    (shelf.documents / "ferry.txt").unlink()
    shelf.update()
    hits = reader.search(shelf.embedder.encode_question("When does the ferry leave?"), 10)
    assert (hits[0].chunk.source, len(hits)) == ("ferry.txt", 4)
    assert len(shelf.open()) == 3
    assert not list(shelf.where.glob("nearest-*"))


def test_foreign_files_in_the_folder_are_left_alone(shelf: Shelf) -> None:
    shelf.update()
    foreign = [shelf.where / name for name in (".DS_Store", "index.sqlite.bak", "nearest-shop")]
    for path in foreign:
        path.write_bytes(b"x")
        path.chmod(0o644)
    (shelf.where / "index.sqlite").write_bytes(b"no database")
    shelf.update(rebuild=True)
    for path in foreign:
        assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"x", 0o644)


def test_progress_counts_bytes_from_small_files_to_large(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "_SETTLED_NS", 0)
    (shelf.documents / "a-diary.txt").write_text(
        "".join(f"Day {n}: rain again.\n\n" for n in range(200))
    )
    seen: list[Progress] = []
    shelf.update(words=4, progress=seen.append)
    sizes = {path: path.stat().st_size for path in shelf.documents.rglob("*.*")}
    files = list(dict.fromkeys(now.file for now in seen))
    assert files == [
        p.relative_to(shelf.documents).as_posix() for p in sorted(sizes, key=sizes.__getitem__)
    ]
    done = [now.done for now in seen]
    assert (done, done[-1]) == (sorted(done), sum(sizes.values()))
    assert {now.total for now in seen} == {sum(sizes.values())}
    assert len([now for now in seen if now.file == "a-diary.txt"]) > 3, "also within a long file"
    seen.clear()
    (shelf.documents / "ferry.txt").write_text("The ferry leaves at ten.")
    shelf.update(words=4, progress=seen.append)
    assert {now.total for now in seen} == {(shelf.documents / "ferry.txt").stat().st_size}


def test_portions_can_be_searched_while_the_rest_is_still_read(
    shelf: Shelf, hashes: WordHashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updating, "_PORTION", 100)
    (shelf.documents / "long.txt").write_text(
        "".join(f"Sentence {n} is here.\n\n" for n in range(300))
    )
    reports: list[Report] = []
    first = shelf.update(words=4, on_portion=lambda report: False)
    assert (first.added, first.left, first.next_file) == (4, 1, "long.txt")
    assert first.left_bytes == (shelf.documents / "long.txt").stat().st_size
    assert shelf.found("When does the ferry leave?")[0] == "ferry.txt"
    hashes.encoded.clear()

    def taken(report: Report) -> bool:
        reports.append(report)
        return True

    last = shelf.update(words=4, on_portion=taken)
    assert (last.left, last.unchanged, last.added) == (0, 4, 1)
    assert len(hashes.encoded) == last.embedded == last.chunks - first.embedded
    assert [report.left for report in reports] == [1] * len(reports)
    assert reports


def test_an_update_in_portions_equals_a_whole_one(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every portion a reader sees the changed files as they were, or as they are."""
    monkeypatch.setattr(updating, "_PORTION", 1)
    monkeypatch.setattr(updating, "_AT_ONCE", 1)
    monkeypatch.setattr(updating, "_SHARE", 10**9)
    shelf.update()
    for name in ("ferry.txt", "museum.md", "bus.txt"):
        (shelf.documents / name).write_text(f"# New\n\nAll about {name} is new.")
    (shelf.documents / "travel" / "hotel.html").rename(shelf.documents / "inn.html")
    seen: list[set[str]] = []

    def taken(report: Report) -> bool:
        seen.append({chunk.text for chunk in shelf.open().chunks()})
        assert report.deleted == 1, "what is not read yet is not gone"
        return True

    before = shelf.open().files()
    shelf.update(on_portion=taken)
    assert len(seen) >= 2
    assert any("The ferry leaves at nine from the north quay." in texts for texts in seen)
    Index.update(tmp_path / "whole", shelf.documents, shelf.embedder)
    assert shelf.open().files() == Index.open(tmp_path / "whole").files() != before
    assert list(shelf.open().chunks()) == list(Index.open(tmp_path / "whole").chunks())


def test_a_rebuild_in_portions_begins_with_nothing(
    shelf: Shelf, hashes: WordHashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updating, "_PORTION", 1)
    monkeypatch.setattr(updating, "_AT_ONCE", 1)
    shelf.update(embedder=hashes.embedder("one"))
    other = hashes.embedder("two")
    shelf.update(embedder=other, rebuild=True, on_portion=lambda report: False)
    assert shelf.open().manifest.files == 1
    report = shelf.update(embedder=other)
    assert (report.unchanged, report.added) == (1, 3)
    shelf.update(embedder=other, words=8, on_portion=lambda report: False)
    assert shelf.open().manifest.files == 1, "no chunk is there that was cut otherwise"


def test_what_is_excluded_or_too_large_is_left_out(shelf: Shelf) -> None:
    (shelf.documents / "log.txt").write_text("x " * 3000)
    (shelf.documents / "build").mkdir()
    (shelf.documents / "build" / "made.txt").write_text("Made by a program.")
    report = shelf.update(exclude=["build/", "travel/h*"], largest=5000)
    assert {chunk.source for chunk in shelf.open().chunks()} == {
        *("ferry.txt", "museum.md", "travel/flight.txt")
    }
    assert [name for name, _ in report.skipped] == ["log.txt"]
    report = shelf.update(exclude=["*.txt"])
    assert {chunk.source for chunk in shelf.open().chunks()} == {
        *("museum.md", "travel/hotel.html")
    }


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("x[z-a]", [], ["xz", "xa", "x[z-a]"]),
        ("[[&]a.txt", ["[a.txt", "&a.txt"], ["a.txt", "aa.txt"]),
        ("*.log", ["a.log", "x/y/a.log", "old.log/a.txt"], ["a.log.txt", "log"]),
        ("/top.txt", ["top.txt"], ["x/top.txt"]),
        ("x/*.txt", ["x/a.txt"], ["x/y/a.txt", "y/x/a.txt"]),
        ("x/**/a.txt", ["x/a.txt", "x/y/z/a.txt"], ["a.txt", "y/x/a.txt"]),
        ("x/**", ["x/a", "x/y/z"], ["y/x/a"]),
        ("made/", ["made/a", "x/made/y/a"], ["made", "remade/a"]),
        ("a[!0-9]?.txt", ["abc.txt", "x/abc.txt"], ["a1c.txt", "ab.txt", "a/c.txt"]),
        ("a+(b).txt", ["a+(b).txt"], ["aab.txt"]),
        ("[", ["["], ["a"]),
        ("", [], ["", "a"]),
    ],
)
def test_patterns_are_those_of_gitignore(
    pattern: str, fits: list[str], does_not: list[str]
) -> None:
    left_out = excluded([pattern])
    assert all(map(left_out, fits))
    assert not any(map(left_out, does_not))


def test_kv_lives_as_long_as_its_chunk(shelf: Shelf) -> None:
    store = KvStore(shelf.where, "model")
    shelf.update()
    ids = shelf.open().store.ids_by_digest()
    for digest in ids:
        store.write(digest, {"keys": np.zeros(3, np.uint16)})
    museum = next(c for c in shelf.open().chunks() if c.source == "museum.md")
    (shelf.documents / "museum.md").unlink()
    shelf.update()
    assert store.stored() == set(ids) - {museum.digest}


def test_a_full_database_is_one_line_and_leaves_the_index(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.update()
    for i in range(100):
        (shelf.documents / f"bus{i}.txt").write_text(f"The bus {i} is yellow. " * 40)
    keep_vectors = SqliteStore.keep_vectors

    def bounded(store: SqliteStore, *rest: Any) -> None:
        store.run("PRAGMA max_page_count = 40")
        keep_vectors(store, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "keep_vectors", bounded)
        with pytest.raises(RetrievalError):
            shelf.update()
    assert len(shelf.open()) == 4
    assert shelf.update().chunks > 104


def test_any_file_name_can_be_indexed(shelf: Shelf) -> None:
    names = {
        "b\\xfcs 'a\".txt": os.fsdecode(b"b\xfcs 'a\".txt"),
        "b\\\\xfcs 'a\".txt": "b\\xfcs 'a\".txt",
        "bus\\u000a\\u001b[31m\\u202e.txt": "bus\n\x1b[31m\u202e.txt",
        "bus \\u202f \U0001f469\\u200d\U0001f680.txt": "bus \u202f \U0001f469\u200d\U0001f680.txt",
    }
    for number, name in enumerate(names.values()):
        (shelf.documents / name).write_text(f"The bus {number} is yellow.")
        assert index_name([shelf.documents], shelf.documents / name) in names
    shelf.update()
    assert names.keys() < shelf.open().files().keys()
    for name in names.values():
        (shelf.documents / name).unlink()
    assert shelf.update().deleted == len(names)


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the name of each file that is read is appended."""
    read, whole = list[str](), Reader.read

    def counted(reader: Reader, path: Path, *rest: Any) -> Any:
        read.append(path.name)
        return whole(reader, path, *rest)

    monkeypatch.setattr(Reader, "read", counted)
    return read


def test_files_whose_stamps_are_as_they_were_are_not_read_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = _counted(monkeypatch)
    shelf.update()
    assert len(read) == 4
    shelf.update()
    assert len(read) == 8, "what has changed just now may change again in the same instant"
    monkeypatch.setattr(ingestion, "_SETTLED_NS", 0)
    shelf.update()
    read.clear()
    ferry = shelf.documents / "ferry.txt"
    before = ferry.stat()
    shelf.update()
    assert read == []
    ferry.write_text("The ferry leaves at nine from the south quay.")
    os.utime(ferry, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert ferry.stat().st_size == before.st_size
    assert shelf.update().changed == 1
    assert read == ["ferry.txt"]


@pytest.mark.parametrize(("stop", "kept"), [("first", 0), ("progress", 64), ("second", 64)])
def test_an_interrupted_update_is_resumed(
    shelf: Shelf, hashes: WordHashes, stop: str, kept: int
) -> None:
    """Ctrl-C at the first embedding, after it, or at the second, within a long file."""
    (shelf.documents / "museum.md").write_text("".join(f"It goes on {n}.\n\n" for n in range(150)))
    armed = True

    def encode(texts: Sequence[str]) -> Any:
        if armed and len(hashes.encoded) == {"first": 0, "second": 64}.get(stop):
            raise KeyboardInterrupt
        return hashes(texts)

    def progress(now: Progress) -> None:
        if armed and stop == "progress" and now.embedded == kept:
            raise KeyboardInterrupt

    embedder = Embedder("words", "words-1", encode, encode)
    with pytest.raises(KeyboardInterrupt):
        shelf.update(embedder=embedder, words=4, progress=progress)
    with pytest.raises(RetrievalError):
        shelf.open()
    armed = False
    report = shelf.update(embedder=embedder, words=4)
    assert report.embedded == report.chunks - kept


def test_small_files_are_embedded_together(shelf: Shelf, hashes: WordHashes) -> None:
    for number in range(100):
        (shelf.documents / f"{number}.txt").write_text(f"The bus {number} is yellow.")
    (shelf.documents / "100.txt").write_text("The bus 7 is yellow.")
    batches: list[int] = []

    def encode(texts: Sequence[str]) -> Any:
        batches.append(len(texts))
        return hashes(texts)

    report = shelf.update(embedder=Embedder("words", "words-1", encode, encode))
    assert (report.added, report.embedded, batches) == (105, 104, [64, 40])


def test_a_portion_says_how_long_the_rest_takes(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updating, "_PORTION", 1)
    monkeypatch.setattr(updating, "_AT_ONCE", 1)
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(updating, "time", clock)
    reports: list[Report] = []

    def taken(report: Report) -> bool:
        reports.append(report)
        clock.monotonic = lambda: 10.0 * len(reports)
        return True

    total = sum(path.stat().st_size for path in shelf.documents.rglob("*.*"))
    assert shelf.update(on_portion=taken).left_s == 0
    assert [report.left for report in reports] == [3, 2, 1]
    for number, report in enumerate(reports):
        done = total - report.left_bytes
        assert report.left_s == pytest.approx(10 * number * report.left_bytes / done)


@pytest.mark.parametrize("ahead_s", [3600, 10**8])
def test_a_file_of_the_future_is_read_once(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    clock = time.time_ns
    (shelf.documents / "ferry.txt").touch()
    at = clock() + ahead_s * 10**9
    os.utime(shelf.documents / "ferry.txt", ns=(at, at))
    monkeypatch.setattr("retrieval.ingestion.time.time_ns", lambda: clock() + 60 * 10**9)
    shelf.update()
    read = _counted(monkeypatch)
    shelf.update()
    assert read == []


def test_names_in_both_unicode_forms_are_one(shelf: Shelf) -> None:
    composed, decomposed = (normalize(form, "café.txt") for form in ("NFC", "NFD"))
    ferry = shelf.documents / "ferry.txt"
    ferry.rename(shelf.documents / composed)
    shelf.update()
    before = shelf.open().files()
    (shelf.documents / composed).rename(shelf.documents / decomposed)
    report = shelf.update()
    assert (report.added, report.deleted, shelf.open().files()) == (0, 0, before)
    assert index_name([shelf.documents], shelf.documents / decomposed) == composed
    (shelf.documents / composed).write_text("The bus is yellow.")
    report = shelf.update()
    assert [name for name, _ in report.skipped] == [composed]
    assert len(shelf.open().files()) == 4
    assert shelf.update(exclude=[composed]).deleted == 1


@pytest.mark.parametrize(
    "name",
    [
        "ferry (conflicted copy 2026-11-02 101112).txt",
        "ferry (Jane's conflicted copy 2026-11-02).txt",
        "ferry.sync-conflict-20261102-101112-ABCDEFG.txt",
    ],
)
def test_the_conflict_of_a_sync_is_no_second_witness(shelf: Shelf, name: str) -> None:
    copy = shelf.documents / name
    copy.write_text("The ferry leaves at ten from the north quay.")
    report = shelf.update()
    assert ([each for each, _ in report.skipped], report.added) == ([name], 4)
    (shelf.documents / "ferry.txt").unlink()
    report = shelf.update()
    assert (report.skipped, report.added) == ((), 1)
    assert shelf.found("When does the ferry leave?") == [name]
