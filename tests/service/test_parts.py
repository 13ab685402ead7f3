"""Where questions are cut, and how the answers to their parts are joined."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from dragonrt.service.prompts import LONGEST, MOST_PARTS, parts_of
from dragonrt.service.text import JoinedText

TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("parts.toml").read_text("utf-8"))
REFUSAL = "I don't know."


@pytest.mark.parametrize("question", TABLE["whole"])
def test_a_question_of_one_part_stays_as_it_is(question: str) -> None:
    assert parts_of(question) == [question]


@pytest.mark.parametrize(("question", "parts"), [(q, parts) for q, *parts in TABLE["cut"]])
def test_a_question_of_several_parts_is_cut_between_them(question: str, parts: list[str]) -> None:
    assert parts_of(question) == parts
    assert len(parts) > 1
    for part in parts:
        assert parts_of(part) == [part], "a part has no parts"


def test_the_table_has_both_kinds_and_eighty_cases() -> None:
    assert {kind: len(cases) for kind, cases in TABLE.items()} == {"whole": 40, "cut": 40}


def test_long_texts_are_not_cut_and_parts_are_bounded() -> None:
    question = "What is it, and who made it?"
    assert len(parts_of(question)) == 2
    assert parts_of(f"{question} {LONGEST * '-'}") == [f"{question} {LONGEST * '-'}"]
    assert len(parts_of("Who is it? " * (MOST_PARTS + 2))) == MOST_PARTS
    endless = "the cat and x " * 40_000  # at each "and" all before it would be read again
    assert parts_of(endless) == [endless]


def joined(parts: list[str], *answers: list[str]) -> tuple[JoinedText, list[str]]:
    """Push the pieces of each answer; return what was shown, piece by piece."""
    text = JoinedText(parts, REFUSAL)
    shown: list[str] = []
    for pieces in answers:
        for piece in pieces:
            shown += filter(None, text.push(piece))
        text.next()
    shown += filter(None, [text.end()])
    assert "".join(shown) == text.text
    return text, shown


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (["Heron", "Kuipers"], "Heron; Kuipers"),
        (["It is Heron.", "Kuipers did. "], "It is Heron. Kuipers did."),
        (["Heron \n", REFUSAL], "Heron; who bred it: I don't know."),
        ([REFUSAL, "Kuipers"], "What is it: I don't know. Kuipers"),
        (["It is Heron.", "i don't know"], "It is Heron. Who bred it: i don't know"),
        ([REFUSAL, REFUSAL], REFUSAL),
        (["Heron", ""], "Heron"),
        (["", ""], ""),
    ],
)
def test_answers_are_joined_and_a_refusal_names_its_part(answers: list[str], text: str) -> None:
    made, _ = joined(["What is it?", "Who bred it?"], *[[answer] for answer in answers])
    assert made.text == text
    for place, answer in zip(made.places, answers, strict=True):
        if answer.strip() in text:
            assert text[place:].startswith(answer.strip())


def test_words_are_shown_as_they_come_once_they_are_no_refusal() -> None:
    parts = ["What is it?", "Who bred it?"]
    _, shown = joined(parts, ["I", " grew", " it", " "], ["I", " don't", " know."])
    assert shown == ["I grew", " it", "; who bred it: I don't know."]
    assert joined(parts[:1], ["I", " don't", " know."])[1] == ["I", " don't", " know."]
