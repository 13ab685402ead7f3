"""Generated texts of benchmarks: each question has one answer, and no training saw the forms."""

import re
import tomllib
from collections import Counter
from pathlib import Path

from retrieval.questions import words_of
from scripts.bench.articles import articles
from scripts.bench.split_qa.generate import written_worlds
from scripts.bench.unseen import FORMS, world

SIDES = ("device", "cloud")
RECIPE = Path(__file__).parents[2] / "scripts" / "train" / "models" / "text"


def test_articles_follow_from_their_seed_and_questions_tell_them_apart() -> None:
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


def test_a_world_follows_from_its_seed_and_each_question_is_asked_once() -> None:
    made = world(1)
    assert made == world(1)
    assert made["device"] != world(2)["device"]
    assert [len(each) for each in made.values()] == [200, 500, 60]
    every = [*made["device"], *made["cloud"]]
    assert all(each.answer in each.document for each in every)
    assert not any("{" in each.document + each.question + each.answer for each in every)
    assert max(Counter(each.question for each in [*every, *made["nowhere"]]).values()) == 1
    assert not any(each.document or each.answer for each in made["nowhere"])


def test_no_form_is_in_the_recipe_of_the_models() -> None:
    forms = tomllib.loads(FORMS.read_text(encoding="utf-8"))
    written = [text for each in written_worlds() for side in SIDES for text in each[side].values()]
    rows = {  # words of the forms without their slots, five in a row
        " ".join(words[i : i + 5])
        for text in (*(form["text"] for form in [*forms["note"], *forms["article"]]), *written)
        for part in re.split(r"\{\w+\}", text)
        if (words := re.findall(r"\w+", part.lower()))
        for i in range(len(words) - 4)
    }
    assert len(rows) > 50
    recipe = " ".join(
        re.findall(r"\w+", " ".join(p.read_text() for p in RECIPE.glob("*.txt")).lower())
    )
    assert not [row for row in rows if row in recipe]
