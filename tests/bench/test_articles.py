"""The corpus of the retrieval benchmark asks what only one article answers."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from retrieval.questions import words_of
from scripts.bench import retrieval as bench
from scripts.bench.articles import articles


def test_a_corpus_follows_from_its_seed_alone() -> None:
    assert articles(1) == articles(1)
    assert articles(1) != articles(2)
    assert Counter(article.kind for article in articles(1)) == {
        "names and numbers": 1632,
        "paraphrase": 368,
    }


def test_questions_tell_articles_apart() -> None:
    made = articles(2026)
    assert len({article.text for article in made}) == len(made)
    questions = Counter(article.question for article in made)
    assert sum(times > 1 for times in questions.values()) < 20  # numbers that fell twice


def test_a_paraphrase_shares_few_words_with_its_article() -> None:
    made = [article for article in articles(3) if article.kind == "paraphrase"]
    shared = [
        len(set(words_of(article.question)) & set(words_of(article.text))) for article in made
    ]
    assert sum(shared) / len(shared) < 0.5


def test_a_follow_up_says_nothing_by_itself() -> None:
    made = [article for article in articles(3) if article.follow_up]
    assert all(not set(words_of(a.follow_up)) & set(words_of(a.question)) for a in made)
    assert len({replace(a, text="", question="").follow_up for a in made}) == 3


@pytest.mark.slow
def test_the_benchmark_reports_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUESTIONS", 10)
    monkeypatch.setattr(bench, "FOLLOW_UPS", 5)
    with (tmp_path / "out").open("w") as file:
        bench.bench_retrieval(
            output=Console(file=file, width=200), messages=Console(stderr=True), count=450
        )
    lines = (tmp_path / "out").read_text().splitlines()
    assert [line for line in lines if line.startswith("names and numbers")]
    assert lines[-1].startswith('{"benchmark": "retrieval"')
