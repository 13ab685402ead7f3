"""Answers under document isolation: the measures, where answers stand, and the mixture itself."""

import json
from pathlib import Path
from typing import Any

import pytest

from dragonrt.errors import DragonError
from dragonrt.modes.question import Question
from dragonrt.node.process.side_settings import SideSettings
from scripts.bench import isolation as bench
from scripts.bench.isolated_answers import PARTED, WAYS
from scripts.bench.question_sets import chosen, worlds
from scripts.bench.split_qa import score
from scripts.bench.split_qa.score import contains, f1, normalised, refuses

ARTICLES = [
    {
        "title": f"Town {number}",
        "paragraphs": [
            {
                "text": f"The mill of town {number} stands on bank {place} and grinds {grain}.",
                "questions": [
                    {
                        "question": f"What does the mill of town {number} on bank {place} grind?",
                        "answers": [grain],
                    }
                ],
            }
            for place, grain in enumerate(("rye", "oats", "barley"))
        ],
    }
    for number in range(4)
]


@pytest.fixture
def articles(tmp_path: Path) -> Path:
    file = tmp_path / "articles.json"
    file.write_text(json.dumps(ARTICLES), encoding="utf-8")
    return file


def test_texts_are_normalised_as_squad_does() -> None:
    assert normalised("The  Cat's 1,200 (old) mice, and an owl!") == "cats 1200 old mice and owl"


@pytest.mark.parametrize(
    ("text", "answers", "score"),
    [
        ("in the old mill", ["the mill"], 2 * (1 / 3) * 1 / (1 / 3 + 1)),
        ("a red, red fox", ["red fox", "wolf"], 0.8),
        ("five", ["six"], 0.0),
        ("The", ["a"], 1.0),
        ("", ["six"], 0.0),
        ("anything", [], 0.0),
    ],
)
def test_f1_is_that_of_the_best_answer(text: str, answers: list[str], score: float) -> None:
    assert f1(text, answers) == pytest.approx(score)


def test_an_answer_is_contained_in_whole_words_only() -> None:
    assert contains("It is the Old Mill.", ["mill house", "old mill"])
    assert not contains("It is an oldmill", ["old mill"])
    assert not contains("anything", [])
    assert not contains("anything", ["The"])


def test_a_refusal_is_what_a_text_begins_with() -> None:
    assert refuses("I don't know. Ask Anna.", " I don't know.")
    assert not refuses("Anna says: I don't know.", "I don't know.")
    assert not refuses("I don't knowingly", "I don't know.")


def _files(paths: tuple[Path, ...]) -> set[str]:
    return {file.name for path in paths for file in path.iterdir()}


def test_the_seed_draws_the_sides_and_the_questions(articles: Path, tmp_path: Path) -> None:
    sides = {
        frozenset(_files(worlds(articles, tmp_path / f"{run}", seed)[0].device))
        for run, seed in enumerate((0, 0, 1, 2, 3))
    }
    assert 1 < len(sides) < 5
    asked = worlds(articles, tmp_path / "documents", 0)[0].questions
    assert chosen(asked, 1.0, 0) == list(asked)
    assert chosen(asked, 0.5, 1) == chosen(asked, 0.5, 1) != chosen(asked, 0.5, 2)
    assert len(chosen(asked, 0.5, 1)) == 6


def test_documents_of_ones_own_are_asked_where_they_lie(tmp_path: Path) -> None:
    file = tmp_path / "set.json"
    asked = {"question": "Who?", "answers": ["Anna"], "place": "device"}
    file.write_text(json.dumps({"device": ["notes"], "cloud": ["a", "b"], "questions": [asked]}))
    (world,) = worlds(file, tmp_path, 0)
    assert world.device == (tmp_path / "notes",)
    assert world.cloud == (tmp_path / "a", tmp_path / "b")
    assert [each.answers for each in world.questions] == [(("Anna",),)]


OUTSIDE = {"worlds": [{"name": "w", "device": {"../a": ""}, "cloud": {}, "questions": []}]}


@pytest.mark.parametrize(
    "text", ["{", "[1]", '{"device": []}', '[{"title": "a"}]', "3", json.dumps(OUTSIDE)]
)
def test_a_file_of_another_form_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "set.json"
    file.write_text(text)
    with pytest.raises(DragonError):
        worlds(file, tmp_path / "documents", 0)


def test_the_written_worlds_are_read_as_they_are(tmp_path: Path) -> None:
    written, forms = worlds("split-qa", tmp_path / "documents", 0)
    (alone,) = worlds("forms", tmp_path / "alone", 0)
    assert alone.questions == forms.questions
    assert len(written.questions) == 120
    bridge = next(each for each in written.questions if each.form == "bridge")
    files = zip((*written.device, *written.cloud), bridge.source.split(" + "), strict=True)
    texts = [(path / name).read_text() for path, name in files]
    assert bridge.is_in(texts, [])
    assert not bridge.is_in([], [])
    said = next(each for each in written.questions if each.answers[0][0] == "yes")
    assert said.is_in(["any"], [f"notes/{each}" for each in said.source.split(" + ")])
    assert not said.is_in(["any"], said.source.split(" + ")[:1])
    assert not said.is_in([*texts, "yes"], ["another.md"])
    assert len(_files(forms.device)) == len(_files(forms.cloud)) == 12
    near, names = worlds(Path(score.__file__).with_name("neighbours.toml"), tmp_path / "near", 0)
    assert len(near.questions) == 60
    assert len(names.questions) == 41


def test_intervals_are_of_articles_and_not_of_questions() -> None:
    rows: list[dict[str, Any]] = [
        {"group": group, "right": right} for group, right in (("a", 1), ("b", 0)) for _ in range(50)
    ]
    by_article = bench.share(rows, "right")
    assert by_article.value == 0.5
    assert (by_article.low, by_article.high) == (0, 1)
    apart = [row | {"group": number} for number, row in enumerate(rows)]
    by_question = bench.share(apart, "right")
    assert 0.35 < by_question.low < 0.5 < by_question.high < 0.65


@pytest.mark.slow
def test_the_mixture_is_what_two_processes_decide(articles: Path) -> None:
    *results, pair, _, redacted = bench.measured_set(
        SideSettings("device", model="dragon-small"),
        Question(seed=3, max_tokens=8, doubt=1.0, reweight_every=2),
        str(articles),
        3,
    )
    assert (pair["same_texts"], pair["timed"]) == (3, 3)
    assert redacted["level"] == "redacted"
    for row in (redacted, *(row for row in results if row.get("place") == "one side")):
        assert sum(row[name]["mean"] for name in ("right", "wrong", "refused")) == pytest.approx(1)
    written = [row for row in results if "text" in row]
    ways = {*WAYS, *(way + bench.IN_PARTS for way in PARTED)}
    assert {row["way"] for row in written} == ways
    home = [row for row in written if row["place"] in ("device", "cloud")]
    assert len(home) == 3 * len(ways)
    for row in home:
        if row["way"] == f"{row['place']} alone":
            assert row["read"]
