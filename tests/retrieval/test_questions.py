import pytest

from retrieval.questions import in_context, is_about_asker, missing_share, words_of

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
def test_a_question_joins_the_turns_it_needs_and_counts_twice(
    earlier: list[tuple[str, str]], question: str, before: str
) -> None:
    sought = f"{before} {question} {question}" if before else question
    assert in_context(question, earlier) == sought


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("When does the ferry to Arden leave?", {"ferry": 1, "arden": 2, "leave": 1}),
        ("Who is it?", {"who": 1, "is": 1, "it": 1}),
        ("Flight SK1234, gate 7", {"flight": 1, "sk1234": 2, "gate": 1, "7": 2}),
        ("漢字か", {"漢": 1, "字": 1, "か": 1}),
        ('"?*', {}),
    ],
)
def test_a_question_is_searched_by_its_content_words(question: str, words: dict[str, int]) -> None:
    assert words_of(question) == words


@pytest.mark.parametrize(
    ("question", "share"),
    [
        ("When does the ferry to Arden leave?", 0.0),
        ("When does the ferry to Lund leave?", 1.0),
        ("Does ferry 12 go from Arden?", 0.5),
        ("When does it leave?", 0.0),
    ],
)
def test_a_text_lacks_names_and_numbers_and_no_other_word(question: str, share: float) -> None:
    assert missing_share(question, "arden.md Arden's boats: 9:40") == share


@pytest.mark.parametrize("question", ["When do I leave?", "My ferry?", "Is it ours?", "Ask us!"])
def test_a_question_with_my_or_our_is_about_own_things(question: str) -> None:
    other = question.replace("do I", "World War I").replace("My", "The").replace("u", "U")
    assert (is_about_asker(question), is_about_asker(other)) == (True, False)
