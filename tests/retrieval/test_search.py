"""What is searched beside the text of a chunk, and limits of the documents that are searched."""

import os
from pathlib import Path

import pytest

from retrieval import Embedder, Index, RetrievalError

from .conftest import Shelf

NOTES = {
    "trips/Rotterdam 2025.md": "The hotel was 120 euros a night.",
    "trips/old/Bergen_spring.txt": "The hotel was too loud.",
    "work/plan.md": "---\ndate: 2026-03-05\ntags: [garden, Home/roof]\nby: Okafor\n---\nWe begin.",
    "work/talk.md": "---\ntags:\n  - roof\nupdated: 2026-05-01 10:30\n---\nThe roof leaks.",
}
MODIFIED_S = 1_700_000_000  # 14 November 2023


def written(folder: Path) -> None:
    for name, text in NOTES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (MODIFIED_S, MODIFIED_S))


@pytest.fixture
def notes(tmp_path: Path, shelf: Shelf) -> Shelf:
    folder = tmp_path / "notes"
    written(folder)
    found = Shelf(folder, tmp_path / "index", shelf.embedder)
    found.update()
    return found


def sources(index: Index, shelf: Shelf, question: str, within: str = "") -> list[str]:
    vector = shelf.embedder.encode_question(question)
    hits = index.search(vector, 9, question, "words" if not within else "hybrid", within)
    return sorted(hit.chunk.source for hit in hits)


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("Rotterdam", ["trips/Rotterdam 2025.md"]),
        ("trips", ["trips/Rotterdam 2025.md", "trips/old/Bergen_spring.txt"]),
        ("spring", ["trips/old/Bergen_spring.txt"]),
        ("Okafor", ["work/plan.md"]),
        ("March", ["work/plan.md"]),
        ("May", ["work/talk.md"]),
        ("txt", ["trips/old/Bergen_spring.txt"]),
    ],
)
def test_files_are_found_by_names_dates_and_front_matter(
    notes: Shelf, question: str, found: list[str]
) -> None:
    assert sources(notes.open(), notes, question) == found


def test_words_about_equal_chunks_follow_their_files(notes: Shelf) -> None:
    first, second = notes.documents / "trips/Rotterdam 2025.md", notes.documents / "Delft.md"
    second.write_text(first.read_text())
    notes.update()
    for name in ("Rotterdam", "Delft"):
        assert len(sources(notes.open(), notes, name)) == 1
    first.unlink()
    notes.update()
    assert sources(notes.open(), notes, "Rotterdam") == []
    assert sources(notes.open(), notes, "Delft") == ["Delft.md"]
    plan = notes.documents / "work/plan.md"
    plan.write_text(plan.read_text().replace("2026-03-05", "2026-04-05"))
    notes.update()
    assert sources(notes.open(), notes, "March") == []
    assert sources(notes.open(), notes, "April") == ["work/plan.md"]


@pytest.mark.parametrize(
    ("within", "found"),
    [
        ("work/plan.md", ["work/plan.md"]),
        ("trips/", ["trips/Rotterdam 2025.md", "trips/old/Bergen_spring.txt"]),
        ("trips/old/", ["trips/old/Bergen_spring.txt"]),
        ("#roof", ["work/talk.md"]),
        ("#Home/Roof", ["work/plan.md"]),
        ("since:2026-03-05", ["work/plan.md", "work/talk.md"]),
        ("since:2026-03-06", ["work/talk.md"]),
        ("since:2020-01-01 trips/old/", ["trips/old/Bergen_spring.txt"]),
        ("since:2023-11-14 #garden", ["work/plan.md"]),
    ],
)
def test_a_question_is_limited_to_some_documents(
    notes: Shelf, within: str, found: list[str]
) -> None:
    assert sources(notes.open(), notes, "When do we begin?", within) == found
    assert notes.open().store.tags() == ["#garden", "#home/roof", "#roof"]


@pytest.mark.parametrize(
    "within", ["plan.md", "trips", "trip/", "#attic", "since:2026-06-01", "since:2026-01-01 trips/"]
)
def test_a_limit_without_a_document_is_an_error(notes: Shelf, within: str) -> None:
    with pytest.raises(RetrievalError):
        sources(notes.open(), notes, "When do we begin?", within)


RENT = "The flat is on Mill Lane 4. The rent is {} euros a month. Heating is included."


@pytest.mark.parametrize(
    ("older", "newer", "texts", "question", "found"),
    [
        ("lease v1.md", "lease v2.md", (RENT, RENT), "What is the rent?", "newer"),
        ("lease_new.md", "lease_copy.md", (RENT, RENT), "What is the rent?", "newer"),
        ("a.md", "b.md", (f"# Lease\n\n{RENT}",) * 2, "What is the rent?", "newer"),
        ("flat 2.md", "flat 3.md", (RENT, RENT), "What is the rent of flat 2?", "both"),
        ("12.md", "13.md", ("# Red barn\n\n" + RENT, RENT), "What is the rent?", "both"),
        ("lease 1.md", "lease 2.md", (RENT, "The rent is {}."), "What is the rent?", "both"),
    ],
)
def test_the_newer_of_two_versions_is_found(
    tmp_path: Path,
    embedder: Embedder,
    older: str,
    newer: str,
    texts: tuple[str, str],
    question: str,
    found: str,
) -> None:
    shelf = Shelf(tmp_path / "notes", tmp_path / "index", embedder)
    shelf.documents.mkdir()
    for days, name, text, rent in zip((0, 1), (older, newer), texts, (900, 950), strict=True):
        (shelf.documents / name).write_text(text.format(rent))
        os.utime(shelf.documents / name, (MODIFIED_S + 86400 * days,) * 2)
    shelf.update()
    versions = {"newer": [newer], "both": sorted([older, newer])}
    assert sources(shelf.open(), shelf, question) == versions[found]


def test_front_matter_dates_a_version_before_its_file_does(notes: Shelf) -> None:
    for number, date in enumerate(("2026-02-01", "2025-02-01")):
        path = notes.documents / f"lease {number}.md"
        path.write_text(f"---\nupdated: {date}\n---\n{RENT.format(number)}")
        os.utime(path, (MODIFIED_S + 86400 * number,) * 2)
    notes.update()
    assert sources(notes.open(), notes, "What is the rent?") == ["lease 0.md"]
