"""Questions in forms that no training saw: each has one answer, and answers are judged alike."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from dragonrt import bundled
from dragonrt.errors import DragonError
from scripts.bench.unseen import KnownAnswer, world
from scripts.papers.intervals import wilson

RECIPE = Path(__file__).parents[2] / "scripts" / "train" / "models" / "text"


def test_a_world_follows_from_its_seed_and_each_question_is_asked_once() -> None:
    made = world(1)
    assert made == world(1)
    assert made.notes != world(2).notes
    assert (len(made.notes), len(made.articles), len(made.absent)) == (200, 500, 60)
    every = [*made.notes, *made.articles]
    assert all(each.answer in each.document for each in every)
    assert not any("{" in each.document + each.question + each.answer for each in every)
    asked = Counter(each.question for each in [*every, *made.absent])
    assert max(asked.values()) == 1


def test_what_is_absent_is_asked_beside_a_note_that_comes_near() -> None:
    made = world(3, notes=60, articles=0, absent=20)
    notes = {each.document for each in made.notes}
    assert all(each.document in notes and not each.answer for each in made.absent)


def test_no_form_is_in_the_recipe_of_the_models() -> None:
    forms = tomllib.loads(bundled.unseen_forms().read_text(encoding="utf-8"))
    # Words of the forms without their slots, five in a row.
    rows = {
        " ".join(words[i : i + 5])
        for form in [*forms["note"], *forms["article"]]
        for part in re.split(r"\{\w+\}", form["text"])
        if (words := re.findall(r"\w+", part.lower()))
        for i in range(len(words) - 4)
    }
    assert len(rows) > 50
    recipe = " ".join(
        re.findall(r"\w+", " ".join(p.read_text() for p in RECIPE.glob("*.txt")).lower())
    )
    assert not [row for row in rows if row in recipe]


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("in the mud room", "right"),
        ("The mud room.", "right"),
        ("mud", "wrong"),
        ("the mudroom", "wrong"),
        ("I don't know.", "unknown"),
        ("", "wrong"),
    ],
)
def test_an_answer_is_right_if_it_has_the_words_that_count(answer: str, verdict: str) -> None:
    assert KnownAnswer("", "", "in the mud room").judged(answer) == verdict


def test_of_what_is_nowhere_only_not_to_know_is_right() -> None:
    assert KnownAnswer("a note", "Who?", "").judged("I don't know.") == "right"
    assert KnownAnswer("a note", "Who?", "").judged("Anna") == "wrong"


def test_a_share_has_an_interval_even_where_all_or_none_count() -> None:
    assert wilson(0, 20).low == pytest.approx(0)
    assert wilson(0, 20).high == pytest.approx(0.161, abs=1e-3)
    half = wilson(50, 100)
    assert (half.low, half.value, half.high) == pytest.approx((0.404, 0.5, 0.596), abs=1e-3)
    with pytest.raises(DragonError, match="nothing was counted"):
        wilson(0, 0)
