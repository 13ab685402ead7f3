"""`dragonrt experiment latency`: two real processes, the user's own questions and documents."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.mark.slow
def test_every_method_answers_at_every_round_trip(run: Run, tmp_path: Path) -> None:
    notes, articles = tmp_path / "notes", tmp_path / "articles"
    for folder, text in ((notes, "The code of the shed is plum-39."), (articles, "Sheds rot.")):
        folder.mkdir()
        (folder / "a.txt").write_text(text)
    (tmp_path / "asked.txt").write_text("What is the code of the shed?\n\nDo sheds rot?\n")
    outcome = run(
        *("experiment", "latency", "--documents", str(notes), "--cloud-documents", str(articles)),
        *("--questions", "asked.txt", "--round-trip", "0ms", "--round-trip", "40ms"),
        *("--max-tokens", "6", "--seed", "1"),
    )
    assert outcome.code == 0, outcome.errors
    with (tmp_path / "results" / "latency.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 4 * 2
    assert {row["same_text"] for row in rows if row["method"] != "synchronous"} == {"1"}
    slow = [float(row["round_trip_ms"]) for row in rows if row["extra_round_trip_ms"] == "40"]
    assert min(slow) >= 40


def test_own_documents_need_own_questions(run: Run, tmp_path: Path) -> None:
    assert run("experiment", "latency", "--documents", str(tmp_path)).code == 1
    (tmp_path / "empty").write_text("\n")
    assert run("experiment", "latency", "--questions", "empty").code == 1
    assert run("experiment", "latency", "--host", "a", "--cloud-documents", ".").code == 1
