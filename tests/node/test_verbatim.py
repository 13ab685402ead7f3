"""Numbers and codes: whole tokens, letter by letter, numbers without their grouping."""

import string
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.node.citing import codes, missing

PART = st.text(string.ascii_letters + string.digits, min_size=1, max_size=6)
CONNECTOR = st.sampled_from("-/_")
CODE = st.builds(
    lambda head, digit, parts: f"{head}{digit}" + "".join(a + b for a, b in parts),
    PART,
    st.integers(0, 9),
    st.lists(st.tuples(CONNECTOR, PART), max_size=3),
).filter(lambda code: not code[0].isdigit())
SPACE = st.sampled_from([" ", "\n", ", ", ". ", " (", ") ", ": ", "; ", "“", "” "])


def named(text: str, *known: str) -> list[str]:
    return [code.text for code in missing(text, known)]


@given(CODE, SPACE, SPACE)
def test_a_code_stands_in_every_text_that_has_it_as_a_token(
    code: str, before: str, behind: str
) -> None:
    assert named(f"It is {code}.", f"the code{before}{code}{behind}is old") == []


@given(CODE, CONNECTOR, PART)
def test_a_part_of_a_longer_code_is_none(code: str, connector: str, part: str) -> None:
    for longer in (f"{code}{connector}{part}", f"x{connector}{code}", f"{code}x", f"x{code}"):
        assert named(code, f"See {longer} there.") == [code]
        assert code not in named(longer, f"{longer}?")


@given(st.text(max_size=60))
def test_what_a_text_has_itself_is_never_missing_and_places_are_true(text: str) -> None:
    assert missing(text, [text]) == []
    found = codes(text)
    assert all(text[code.start : code.end] == code.text for code in found)
    assert all(a.end <= b.start for a, b in pairwise(found))


@given(st.integers(1000, 10**9), st.sampled_from(",'’"))
def test_numbers_are_compared_without_their_grouping(number: int, mark: str) -> None:
    grouped = f"{number:,}".replace(",", mark)
    assert named(str(number), f"It costs {grouped} euros.") == []
    assert named(f"It costs {grouped}.", f"{number} euros") == []
    assert named(grouped, str(number + 1)) == [grouped]


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
    assert named(answer, document) == unknown
