"""Which files are sources, with which sentence; and which numbers and codes are copied whole."""

import math
import string
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.node.answers.citing import (
    CLOSE_BITS,
    FEWEST_BITS,
    LEAST_SHARE,
    LONGEST_SENTENCE,
    Passage,
    attribution,
    cited,
    codes,
    is_refusal,
    marks,
    missing,
    sentence_of,
    shown_sources,
)
from dragonrt.privacy.evidence import AnswerEvidence
from dragonrt.side import Side
from dragonrt.traces.events import TokenDecided
from dragonrt.wire.fields import MAX_MISSING
from dragonrt.wire.messages import Source

BITS = st.floats(0, 200)


def sources(*bits: float) -> list[Source]:
    return [Source("", f"{place}.md", 0.5, each) for place, each in enumerate(bits)]


def evidence(*files: float, other: float | None = None) -> AnswerEvidence:
    found = AnswerEvidence()
    found.decide(0, files, other)
    return found


@given(st.lists(BITS, max_size=4), st.lists(BITS, max_size=4), st.none() | BITS)
def test_sources_have_clear_evidence_or_the_most_of_all(
    own: list[float], others: list[float], most: float | None
) -> None:
    bound = math.inf if most is None else most
    weights = [*own, *(min(each, bound) for each in others)]
    largest = max(weights, default=0.0)
    found = shown_sources(sources(*own), sources(*others), most)
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


def test_chunks_of_one_file_are_one_source_in_reading_order() -> None:
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
    assert [source.name for _, source in shown_sources(found, [], None)] == ["boat.md"]


def test_a_cloud_sends_its_sources_and_the_codes_it_lacks() -> None:
    read = [Passage("7 boats", "boat.md", 0.4, "Number 41."), Passage("", "car.md", 0.9, "Blue.")]
    told = attribution(read, evidence(3.0, 0.1), "41 of 7, 43 and 43 and 9", "Which of the 9?")
    assert [(source.name, source.sentence) for source in told.sources] == [
        ("boat.md", "Number 41.")
    ]
    assert told.missing == ("43",)
    many = " ".join(map(str, range(100, 300)))
    assert len(attribution(read, evidence(), f"{'9' * 300} {many}", "").missing) == MAX_MISSING


def test_only_likelier_tokens_count_and_a_step_counts_once() -> None:
    found = AnswerEvidence()
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
def test_the_sentence_shares_most_words_with_the_answer(
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


# Numbers and codes.

PART = st.text(string.ascii_letters + string.digits, min_size=1, max_size=6)
CONNECTOR = st.sampled_from("-/_")
CODE = st.builds(
    lambda head, digit, parts: f"{head}{digit}" + "".join(a + b for a, b in parts),
    PART,
    st.integers(0, 9),
    st.lists(st.tuples(CONNECTOR, PART), max_size=3),
).filter(lambda code: not code[0].isdigit())
SPACE = st.sampled_from([" ", "\n", ", ", ". ", " (", ") ", ": ", "; ", "“", "” "])


def unknown_in(text: str, *known: str) -> list[str]:
    return [code.text for code in missing(text, known)]


@given(CODE, SPACE, SPACE)
def test_a_code_stands_in_every_text_that_has_it_as_a_token(
    code: str, before: str, behind: str
) -> None:
    assert unknown_in(f"It is {code}.", f"the code{before}{code}{behind}is old") == []


@given(CODE, CONNECTOR, PART)
def test_a_part_of_a_longer_code_is_none(code: str, connector: str, part: str) -> None:
    for longer in (f"{code}{connector}{part}", f"x{connector}{code}", f"{code}x", f"x{code}"):
        assert unknown_in(code, f"See {longer} there.") == [code]
        assert code not in unknown_in(longer, f"{longer}?")


@given(st.text(max_size=60))
def test_values_in_the_text_are_not_missing_and_places_match(text: str) -> None:
    assert missing(text, [text]) == []
    found = codes(text)
    assert all(text[code.start : code.end] == code.text for code in found)
    assert all(a.end <= b.start for a, b in pairwise(found))


@given(st.integers(1000, 10**9), st.sampled_from(",'’"))
def test_numbers_are_compared_without_their_grouping(number: int, mark: str) -> None:
    grouped = f"{number:,}".replace(",", mark)
    assert unknown_in(str(number), f"It costs {grouped} euros.") == []
    assert unknown_in(f"It costs {grouped}.", f"{number} euros") == []
    assert unknown_in(grouped, str(number + 1)) == [grouped]


@pytest.mark.parametrize(
    ("answer", "document", "unknown"),
    [
        ("plum-39", "The code is plum-otter-39.", ["plum-39"]),
        ("PM-48213", "serial number PM-48213-K", ["PM-48213"]),
        ("PM-48213-K.", "(PM-48213-K)", []),
        ("pm-48213-k", "PM-48213-K", ["pm-48213-k"]),
        ("at 15:00", "at 15:00, room 4", []),
        ("at 15", "at 15:00", ["15"]),
        ("at 3 pm", "at 15:00", ["3"]),
        ("at 3 pm", "at 3pm", []),
        ("75mg", "75 mg a day", []),
        ("on the 3rd of May", "on 3 May", []),
        ("on 14 May 2023", "on 14 May", ["2023"]),
        ("10.4.0.2", "10.4.0.23", ["10.4.0.2"]),
        ("claims@north.example", "claims@northwall.example", ["claims@north.example"]),
        ("claims@northwall.example", "Write to claims@northwall.example.", []),
        ("555-0187", "tel. 555-0187", []),
        ("ABC-DE", "ABC-DEF", ["ABC-DE"]),
        ("3/4", "3/40", ["3/4"]),
        ("2,5 kg", "2,5 kg", []),
        ("no code, a well-known plum-otter", "", []),
        ("1. Wait\n2. Go on", "wait, go on", []),
        ("1. Wait 5 s\n2. Go on", "wait, go on", ["5"]),
        ("39.", "", ["39"]),
    ],
)
def test_cases(answer: str, document: str, unknown: list[str]) -> None:
    assert unknown_in(answer, document) == unknown


KEY = Source("Key", "key.md", 0.9, 9.0, "Behind the door.")
BOAT = Source("Boat", "boat.md", 0.8, 5.0, "It lies in Tarnby.")
SHOP = Source("Shop", "shop.md", 0.8, 7.0, "Open on Friday.")
READ = (
    Passage("Key", "key.md", 0.9, "It hangs high.", 40),
    Passage("Boat", "boat.md", 0.8, "It lies in Tarnby."),
    Passage("Key", "key.md", 0.7, "Behind the door.", 90),
)
OF: list[tuple[Side, Source]] = [("device", KEY), ("device", BOAT), ("cloud", SHOP)]


Token = tuple[str, float, float, float, int | None]
"""Its text, bits of the key, the boat and the cloud, and the own chunk that made it likely."""


def found(*tokens: Token) -> list[tuple[str, str, int | None]]:
    """The marks of these tokens: their words, their file and the place of its chunk."""
    evidence, pieces = AnswerEvidence(), []
    for step, (text, key, boat, cloud, chunk) in enumerate(tokens):
        evidence.decide(step, (key, boat), cloud)
        event = TokenDecided(step, 0, None, None, "own", 0.0, 0.5, chunk)
        pieces.append((text, event))
    whole = "".join(text for text, _ in pieces)
    return [
        (whole[each.start : each.end], each.source.name, each.place)
        for each in marks(pieces, READ, evidence, OF)
    ]


def test_neighbouring_words_of_a_source_are_one_mark() -> None:
    near = ("beside", 3, 0, 0, 2), (" the", 0, 0, 0, 2), (" gate", 4, 0, 0, 2)
    assert found(*near) == [("beside the gate", "key.md", 90)]
    apart = near[0], (" every", 0, 0, 0, 2), near[2]
    assert found(*apart) == [("beside", "key.md", 90), ("gate", "key.md", 90)]
    other = near[0], (" Elmsby", 0, 3, 0, 1), near[2]
    assert [mark[1] for mark in found(*other)] == ["key.md", "boat.md", "key.md"]
    chunks = near[0], (" above", 3, 0, 0, 0)
    assert [mark[2] for mark in found(*chunks)] == [90, 40]


def test_the_tokens_of_a_word_count_together() -> None:
    assert found(("pl", 0.6, 0.8, 0, 0), ("um-39", 0.6, 0, 0, 0)) == [("plum-39", "key.md", 40)]
    assert found(("plum", 0.6, 0.8, 0, 0)) == []


@pytest.mark.parametrize(("word", "named"), [("Friday", "shop.md"), ("Tarnby", "boat.md")])
def test_a_word_without_evidence_is_of_the_sentence_that_has_it(word: str, named: str) -> None:
    assert [mark[1] for mark in found((word, 0, 0, 0, None))] == [named]
    assert found(("Sunday", 0, 0, 0, None)) == [], "it is nobody's"


@pytest.mark.parametrize("file", ["Screenshot 10.00\u202fAM.md", f"{2000 * 'x'}.md"])
def test_a_source_whose_name_is_shown_otherwise_has_its_words(file: str) -> None:
    evidence, event = AnswerEvidence(), TokenDecided(0, 0, None, None, "own", 0.0, 0.5, None)
    evidence.decide(0, (3.0,), None)
    source = Source("Key", file, 0.9, 9.0, "Behind the door.")
    (mark,) = marks(
        [("beside", event)], [Passage("Key", file, 0.9, "", 40)], evidence, [("device", source)]
    )
    assert (mark.source, mark.place) == (source, 40)
