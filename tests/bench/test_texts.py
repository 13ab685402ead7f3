"""Texts of benchmarks: generated from a seed, or made of the public files of docs/results."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from dragonrt.errors import DragonError
from retrieval.questions import words_of
from scripts.bench.forms import articles, forms, notes
from scripts.bench.split_qa.generate import written_worlds
from scripts.bench.texts import TEXTS, XQUAD_HALF, spec_bench_half, texts, xquad_half
from scripts.papers.texts import DocumentQuestion, answerable

SIDES = ("device", "cloud")
RECIPE = Path(__file__).parents[2] / "scripts" / "train" / "models" / "text"


def test_articles_follow_from_their_seed_and_are_distinct() -> None:
    made = articles(2026)
    assert made == articles(2026)
    assert made != articles(1)
    assert Counter(each.kind for each in made) == {"names and numbers": 1632, "paraphrase": 368}
    assert len({each.text for each in made}) == len(made)
    questions = Counter(each.question for each in made)
    assert sum(times > 1 for times in questions.values()) < 20  # numbers that fell twice
    follow_ups = [each for each in made if each.follow_up]
    assert all(not set(words_of(a.follow_up)) & set(words_of(a.question)) for a in follow_ups)


def test_a_paraphrase_shares_few_words_with_its_article() -> None:
    made = [each for each in articles(3) if each.kind == "paraphrase"]
    shared = [len(set(words_of(each.question)) & set(words_of(each.text))) for each in made]
    assert sum(shared) / len(shared) < 0.5


def test_notes_follow_from_their_seed_with_one_question_each() -> None:
    made = notes(1)
    assert made == notes(1)
    assert made["device"] != notes(2)["device"]
    asked, documents = made["questions"], made["device"] | made["cloud"]
    assert Counter(each["place"] for each in asked) == {"device": 200, "cloud": 500, "nowhere": 60}
    assert all(answer in documents[each["id"]] for each in asked for answer in each["answers"])
    assert all(bool(each["answers"]) == (each["id"] in documents) for each in asked)
    assert "{" not in "".join((*documents.values(), *(each["question"] for each in asked)))
    assert max(Counter(each["question"] for each in asked).values()) == 1


def test_no_form_is_in_the_recipe_of_the_models() -> None:
    file = forms("unseen.toml")
    written = [text for each in written_worlds() for side in SIDES for text in each[side].values()]
    rows = {  # words of the forms without their slots, five in a row
        " ".join(words[i : i + 5])
        for text in (*(form["text"] for form in [*file["note"], *file["article"]]), *written)
        for part in re.split(r"\{\w+\}", text)
        if (words := re.findall(r"\w+", part.lower()))
        for i in range(len(words) - 4)
    }
    assert len(rows) > 50
    recipe = " ".join(
        re.findall(r"\w+", " ".join(p.read_text() for p in RECIPE.glob("*.txt")).lower())
    )
    assert not [row for row in rows if row in recipe]


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
