import pytest

from retrieval.questions import in_context, words_of

SHIP, ADA = ("When does the Nora sail to Bergen?", "at 7:40"), ("Who is Ada?", "")


@pytest.mark.parametrize(
    ("earlier", "question", "before"),
    [
        ([], "And when is it?", ""),
        ([SHIP], "And what does it cost?", "When does the Nora sail to Bergen? at 7:40"),
        ([SHIP], "What about dogs?", "When does the Nora sail to Bergen? at 7:40"),
        ([SHIP], "Why?", "When does the Nora sail to Bergen? at 7:40"),
        (
            [SHIP, ("And the Ada?", "at 8")],
            "And back?",
            "When does the Nora sail to Bergen? at 7:40 And the Ada? at 8",
        ),
        ([SHIP], "Where is the museum of glass?", ""),
        ([ADA, SHIP], "Is she there?", "When does the Nora sail to Bergen? at 7:40"),
        ([SHIP, ADA], "Is she there?", "When does the Nora sail to Bergen? at 7:40 Who is Ada?"),
    ],
)
def test_a_question_is_joined_to_the_turns_it_needs_and_counts_twice_there(
    earlier: list[tuple[str, str]], question: str, before: str
) -> None:
    sought = f"{before} {question} {question}" if before else question
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
