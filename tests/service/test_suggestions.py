"""Questions that sentences answer."""

import pytest

from dragonrt.service.suggestions import suggested


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("The boat exam is on 8 June in room 12.", "When is the boat exam?"),
        ("Hello! My flight to Lisbon leaves on 3 October.", "When does my flight to Lisbon leave?"),
        ("The pump was bought in 2019 at Hill's.", "When was the pump bought?"),
        ("The life jackets are in the attic.", "Where are the life jackets?"),
        ("The code for the shed is 4182.", "What is the code for the shed?"),
        ("Emil is allergic to nuts.", "What is Emil allergic to?"),
        ("A lost card costs 5 euros.", "How much does a lost card cost?"),
        ("The plumber is called Oskar Lund.", "What is the plumber called?"),
        ("Nora's birthday is on 21 June.", "When is Nora's birthday?"),
    ],
)
def test_a_fact_is_turned_around(text: str, question: str) -> None:
    assert suggested([text]) == [question]


@pytest.mark.parametrize(
    "text",
    [
        "It is on 8 June.",
        "She lives in Tarnby.",
        "The boat is called and lies in the harbor.",
        "The bridge is 300 m long.",
        "The office is on 14 Rope Street.",
        "Where is the boat? The key is mine.",
        "The key is missing since the man that came is in the attic.",
    ],
)
def test_what_states_no_fact_by_itself_makes_none(text: str) -> None:
    assert suggested([text]) == []


def test_questions_of_several_kinds_are_preferred() -> None:
    texts = [f"The {each} is on 8 June." for each in ("exam", "play", "trip")]
    found = suggested([*texts, *texts, "The key is in the attic."])
    assert found == ["When is the exam?", "Where is the key?", "When is the play?"]
