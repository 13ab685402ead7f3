"""Evaluation texts are made of the public files that docs/results are of, and of no others."""

import json
from pathlib import Path

import pytest

from dragonrt.errors import DragonError
from scripts.bench.texts import TEXTS, XQUAD_HALF, spec_bench_half, texts, xquad_half
from scripts.papers.texts import DocumentQuestion, answerable


def _article(number: int) -> dict[str, object]:
    asked = {"id": "x", "question": "Who?", "answers": [{"text": "Tom", "answer_start": 0}]}
    return {"title": str(number), "paragraphs": [{"context": "Tom does.", "qas": [asked]}]}


def test_half_of_the_articles_are_questions_with_their_documents(tmp_path: Path) -> None:
    path = tmp_path / "half.json"
    path.write_text(xquad_half(json.dumps({"data": [_article(n) for n in range(48)]})))
    assert answerable(path) == [
        DocumentQuestion(str(n), "Tom does.", "Who?", ("Tom",)) for n in XQUAD_HALF
    ]
    assert len({*XQUAD_HALF}) == 24


def test_every_second_conversation_is_kept() -> None:
    rows = [{"question_id": n, "category": "qa", "turns": [f"é {n}"]} for n in range(4)]
    kept = spec_bench_half("\n".join(map(json.dumps, rows))).splitlines()
    assert kept == [f'{{"category": "qa", "turns": ["é {n}"]}}' for n in (0, 2)]


@pytest.mark.parametrize("public", [None, "nonsense", '{"data": []}', "[]"])
def test_other_files_are_refused(tmp_path: Path, public: str | None) -> None:
    if public is not None:
        for name, _, _ in TEXTS.values():
            (tmp_path / name).write_text(public)
    with pytest.raises(DragonError, match=r"xquad\.en\.json"):
        texts(tmp_path)
    assert not any((tmp_path / name).exists() for name in TEXTS if "/" not in name)
