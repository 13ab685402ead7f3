"""Split-QA: what the sets hold, how a system's answers are scored, and when a reader refuses."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from scripts.bench.split_qa import generate, score
from scripts.bench.split_qa.score import HOMES, contains, judged

SQUAD = {
    "data": [
        {
            "title": f"River {number}",
            "paragraphs": [
                {
                    "context": f"The Aune {number} is {number}7 km long. It rises at Mount Orr.",
                    "qas": [
                        {
                            "question": f"How long is the Aune {number}?",
                            "answers": [{"text": f"{number}7 km", "answer_start": 14}] * 2,
                        },
                        {
                            "question": "Where does it rise?",
                            "answers": [{"text": "Mount Orr", "answer_start": 36}],
                        },
                        {"question": "Who owns it?", "answers": [], "is_impossible": True},
                    ],
                }
            ],
        }
        for number in range(1, 7)
    ]
}


def test_a_squad_paragraph_is_on_one_side_both_neither_or_halved() -> None:
    made = generate.split_qa(SQUAD, 1)
    assert made == generate.split_qa(SQUAD, 1)
    assert made != generate.split_qa(SQUAD, 2)
    worlds = {each["name"]: each for each in made}
    assert tuple(worlds) == ("home", "both", "nowhere", "halves", "written", "forms")
    home, both, nowhere, halves = list(worlds.values())[:4]
    assert len(home["device"]) == len(home["cloud"]) == 3
    held = [each for each in home["questions"] if each["place"] != "nowhere"]
    assert all(each["source"] in home[each["place"]] for each in held)
    assert Counter(each["place"] for each in home["questions"])["nowhere"] == 6
    assert set(both["device"]) & set(both["cloud"]) == {
        each["source"] for each in both["questions"]
    }
    gone = {each["source"] for each in nowhere["questions"]}
    assert len(gone) == 2
    assert not gone & {*nowhere["device"], *nowhere["cloud"]}
    assert set(halves["device"]) == set(halves["cloud"])
    for each in halves["questions"]:
        for answers in each["answers"]:
            held = [contains(halves[side][each["source"]], answers) for side in HOMES["one side"]]
            assert held.count(True) == 1
        assert each["question"].startswith(f"How long is the Aune {each['group'][6:]}")
    ids = [each["id"] for world in made for each in world["questions"]]
    assert len(set(ids)) == len(ids)


def test_written_questions_have_answers_in_their_documents() -> None:
    written, forms = generate.written_worlds()
    assert Counter(each["form"] for each in written["questions"]) == dict.fromkeys(
        generate.WRITTEN, 40
    )
    places = Counter(each["place"] for each in forms["questions"] if each["form"] != "task")
    assert places == {"device": 12, "cloud": 12, "needs both": 12, "nowhere": 12}
    assert sum(each["form"] == "task" for each in forms["questions"]) == 12
    for world in (written, forms):
        texts = {
            side: "\n".join(
                text.replace(",", " , ") if name.endswith(".csv") else text
                for name, text in world[side].items()
            )
            for side in HOMES["one side"]
        }
        for each in world["questions"]:
            sides = HOMES["one side"] if each["place"] == "needs both" else (each["place"],)
            text = "\n".join(texts.get(side, "") for side in sides)
            parts = [part for part in each["answers"] if part[0] not in ("yes", "no")]
            assert all(contains(text, part) for part in parts), each
            assert all(contains(text, [wrong]) for wrong in each["wrong"]), each
            assert {*each["source"].split(" + ")} <= {*world["device"], *world["cloud"]}
    for each in written["questions"]:
        if each["form"] == "two part":  # one part a side
            names = zip(HOMES["one side"], each["source"].split(" + "), strict=True)
            pair = [written[side][name] for side, name in names]
            held = [[contains(text, part) for text in pair] for part in each["answers"]]
            assert [any(side) for side in zip(*held, strict=True)] == [True, True], each
            assert all(part.count(True) == 1 for part in held), each


@pytest.mark.parametrize(
    ("text", "answers", "right"),
    [
        ("Friday, at 15:00.", [["Friday"], ["15:00", "3 pm"]], True),
        ("On Friday.", [["Friday"], ["15:00", "3 pm"]], False),
        ("15:00, or 17:00", [["15:00"]], False),
        ("No, pets are not allowed", [["no", "not allowed"]], True),
        ("Pets are not allowed.", [["no", "not allowed"]], True),
        ("Yes, not allowed", [["no", "not allowed"]], False),
        ("Nowhere", [["no", "not allowed"]], False),
        ("", [["Friday"]], False),
    ],
)
def test_right_has_every_part_and_no_wrong_value(
    text: str, answers: list[list[str]], right: bool
) -> None:
    asked = {"place": "needs both", "answers": answers, "wrong": ["17:00"]}
    assert judged(asked, text, "I don't know.")["right"] is right


def test_where_no_document_answers_only_a_refusal_is_right() -> None:
    asked = {"place": "nowhere", "answers": [["Friday"]]}
    found = [judged(asked, text, "I don't know.") for text in ("Friday", "I don't know.", "")]
    assert [each["right"] for each in found] == [False, True, True]
    assert [each["wrong"] for each in found] == [True, False, False]


def test_an_answer_is_right_wrong_or_refused() -> None:
    asked = {"place": "device", "answers": [["Friday"]]}
    for measure, text in (("right", "Friday"), ("wrong", "Sunday"), ("refused", "I don't know.")):
        found = judged(asked, text, "I don't know.")
        assert [name for name in ("right", "wrong", "refused") if found[name]] == [measure]


def test_another_system_is_scored_without_the_project(tmp_path: Path) -> None:
    file, answers = tmp_path / "set.json", tmp_path / "answers.json"
    articles = tmp_path / "squad.json"
    articles.write_text(json.dumps(SQUAD))

    def called(program: Any, *words: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", program.__file__, *map(str, words)],
            cwd=tmp_path,
            env={},
            capture_output=True,
            text=True,
        )

    assert called(generate, articles, "--out", file).returncode == 0
    worlds = json.loads(file.read_text())["worlds"]
    asked = {each["id"]: each for world in worlds for each in world["questions"]}
    perfect = {
        id_: "I don't know."
        if each["place"] == "nowhere"
        else " ".join(part[0] for part in each["answers"])
        for id_, each in asked.items()
    }
    answers.write_text(json.dumps(perfect))
    ran = called(score, file, answers)
    result = json.loads(ran.stdout.splitlines()[-1])
    assert result["missing"] == 0
    assert {row["answer"] for row in result["scores"]} == set(HOMES)
    assert all(row["right"]["mean"] == 1 for row in result["scores"])
    answers.write_text(json.dumps({"home-0-0-0": "Mount Orr", "no such": ""}))
    assert called(score, file, answers).returncode != 0
    assert called(score, articles, answers).returncode != 0
    answers.write_text("{}")
    unanswered = json.loads(called(score, file, answers).stdout.splitlines()[-1])
    assert unanswered["missing"] == len(asked)
    assert not any(row["f1"]["mean"] for row in unanswered["scores"])
