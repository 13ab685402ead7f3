"""Which files are named as sources, and with which sentence."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.node.citing import (
    CLOSE_BITS,
    FEWEST_BITS,
    LEAST_SHARE,
    LONGEST_SENTENCE,
    Passage,
    attribution,
    cited,
    is_refusal,
    named,
    sentence_of,
)
from dragonrt.privacy.evidence import Moved
from dragonrt.wire.limits import MAX_MISSING
from dragonrt.wire.messages import Source

BITS = st.floats(0, 200)


def sources(*bits: float) -> list[Source]:
    return [Source("", f"{place}.md", 0.5, each) for place, each in enumerate(bits)]


def moved(*files: float, other: float | None = None) -> Moved:
    found = Moved()
    found.decide(0, files, other)
    return found


@given(st.lists(BITS, max_size=4), st.lists(BITS, max_size=4), st.none() | BITS)
def test_files_with_clear_evidence_are_named_or_else_the_one_with_the_most(
    own: list[float], others: list[float], most: float | None
) -> None:
    bound = math.inf if most is None else most
    weights = [*own, *(min(each, bound) for each in others)]
    largest = max(weights, default=0.0)
    found = named(sources(*own), sources(*others), most)
    sides = [*(["device"] * len(own)), *(["cloud"] * len(others))]
    every = list(zip(sides, [*sources(*own), *sources(*others)], weights, strict=True))
    if largest >= FEWEST_BITS:
        wanted = [
            (side, source)
            for side, source, bits in every
            if bits >= FEWEST_BITS and bits >= LEAST_SHARE * largest
        ]
    else:
        wanted = [
            (side, source)
            for side, source, bits in every
            if bits == largest and largest >= CLOSE_BITS
        ]
    assert found == wanted


def test_the_chunks_of_a_file_are_one_source_in_the_order_in_which_they_were_read() -> None:
    read = [
        Passage("Boat", "boat.md", 0.4, "The boat is red."),
        Passage("Car", "car.md", 0.9, "The car is blue."),
        Passage("Boat", "boat.md", 0.6, "It lies in Tarnby."),
    ]
    boat, car = cited(read, [7.0, 0.0], "in Tarnby", "Where is the boat?")
    assert boat == Source("Boat", "boat.md", 0.6, 7.0, "It lies in Tarnby.")
    assert (car.name, car.bits) == ("car.md", 0.0)


def test_without_evidence_the_words_of_the_answer_decide() -> None:
    read = [Passage("", "boat.md", 0.4, "It lies in Tarnby."), Passage("", "car.md", 0.9, "Blue.")]
    found = cited(read, [], "Tarnby", "Where?")
    assert [source.name for _, source in named(found, [], None)] == ["boat.md"]


def test_a_cloud_says_what_may_be_named_and_which_codes_it_does_not_have() -> None:
    read = [Passage("7 boats", "boat.md", 0.4, "Number 41."), Passage("", "car.md", 0.9, "Blue.")]
    told = attribution(read, moved(3.0, 0.1), "41 of 7, 43 and 43 and 9", "Which of the 9?")
    assert [(source.name, source.sentence) for source in told.sources] == [
        ("boat.md", "Number 41.")
    ]
    assert told.missing == ("43",)
    many = " ".join(map(str, range(100, 300)))
    assert len(attribution(read, moved(), f"{'9' * 300} {many}", "").missing) == MAX_MISSING


def test_tokens_that_became_likelier_count_and_a_step_counts_once() -> None:
    found = Moved()
    assert (found.files, found.other) == ([], None)
    found.decide(0, (3.0, -2.0), 1.0)
    found.decide(1, (9.0,), -5.0)
    found.decide(1, (-1.0, 2.0, 0.5), 0.5)
    assert (found.files, found.other) == ([3.0, 2.0, 0.5], 1.5)


@pytest.mark.parametrize(
    ("answer", "question", "sentence"),
    [
        ("Thursday at 15:30", "When is it?", "The dentist, Dr. Malik, sees Emil on Thursday."),
        ("the card", "What do I bring?", "Bring the card!"),
        ("tel. 555-0163", "Whom?", "Ask for Mrs. Novak, tel. 555-0163."),
        ("yes", "Is the box red?", "- a red box"),
        ("in the red box", "Where?", "- a red box"),
    ],
)
def test_the_sentence_shares_most_with_the_answer_then_with_the_question(
    answer: str, question: str, sentence: str
) -> None:
    text = (
        "# Notes\nThe dentist, Dr. Malik, sees Emil on Thursday. Bring the card! Ask for "
        "Mrs. Novak, tel. 555-0163.\n\n- a blue bag\n- a red box\n"
    )
    assert sentence_of([text], answer, question)[0] == sentence


@given(st.text(max_size=200), st.text(max_size=30), st.text(max_size=30))
def test_a_sentence_is_of_the_text(text: str, answer: str, question: str) -> None:
    sentence, covered = sentence_of([text], answer, question)
    assert "".join(sentence.split()) in "".join(text.split())
    assert bool(sentence) == bool(text.strip())
    assert 0 <= covered <= 1


def test_of_a_long_sentence_what_lies_around_the_answer_is_shown() -> None:
    text = f"{'so ' * 300}plum-otter-39 {'and ' * 300}"
    sentence, _ = sentence_of([text], "plum-otter-39", "")
    assert "plum-otter-39" in sentence
    assert sentence[0] == sentence[-1] == "…"
    assert len(sentence) <= LONGEST_SENTENCE + 2


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        ("I don’t know.", True),
        ("i  don't know", True),
        ("I do not know where it is.", True),
        ("That is not known.", True),
        ("It is unknown.", True),
        ("Das weiß ich nicht.", True),
        ("", True),
        ("Friday", False),
        ("I know: Friday", False),
        ("Don't knock.", False),
    ],
)
def test_refusals(answer: str, refused: bool) -> None:
    assert is_refusal(answer, " Das weiß ich nicht.") is refused
