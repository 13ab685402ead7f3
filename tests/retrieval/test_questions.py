import pytest

from retrieval.questions import in_context, words_of

SHIP = "When does the Nora sail to Bergen?"


@pytest.mark.parametrize(
    ("earlier", "question", "sought"),
    [
        ([], "And when is it?", "And when is it?"),
        ([SHIP], "And what does it cost?", f"{SHIP} And what does it cost?"),
        ([SHIP], "What about dogs?", f"{SHIP} What about dogs?"),
        ([SHIP], "Why?", f"{SHIP} Why?"),
        ([SHIP, "What does it cost?"], "And back?", f"{SHIP} What does it cost? And back?"),
        ([SHIP], "Where is the museum of glass?", "Where is the museum of glass?"),
        (["Who is Ada?", SHIP], "Is she there?", f"{SHIP} Is she there?"),
    ],
)
def test_a_question_is_joined_to_those_it_needs(
    earlier: list[str], question: str, sought: str
) -> None:
    assert in_context(question, earlier) == sought


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("When does the ferry leave?", ["ferry", "leave"]),
        ("Who is it?", ["who", "is", "it"]),
        ("Flight SK1234, SK1234", ["flight", "sk1234"]),
        ("漢字か", ["漢", "字", "か"]),
        ('"?*', []),
    ],
)
def test_a_question_is_searched_for_by_the_words_that_say_something(
    question: str, words: list[str]
) -> None:
    assert words_of(question) == words
