"""Marks by themselves: which words are one, and which are nobody's."""

import pytest

from dragonrt.node.answers.citing import Passage
from dragonrt.node.answers.marking import marks
from dragonrt.privacy.evidence import Moved
from dragonrt.side import Side
from dragonrt.traces.events import TokenDecided
from dragonrt.wire.messages import Source

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
    moved, pieces = Moved(), []
    for step, (text, key, boat, cloud, chunk) in enumerate(tokens):
        moved.decide(step, (key, boat), cloud)
        event = TokenDecided(step, 0, None, None, "own", 0.0, 0.5, chunk)
        pieces.append((text, event))
    whole = "".join(text for text, _ in pieces)
    return [
        (whole[each.start : each.end], each.source.name, each.place)
        for each in marks(pieces, READ, moved, OF)
    ]


def test_neighbouring_words_of_a_source_are_one_mark_across_short_ones() -> None:
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
    moved, event = Moved(), TokenDecided(0, 0, None, None, "own", 0.0, 0.5, None)
    moved.decide(0, (3.0,), None)
    source = Source("Key", file, 0.9, 9.0, "Behind the door.")
    (mark,) = marks(
        [("beside", event)], [Passage("Key", file, 0.9, "", 40)], moved, [("device", source)]
    )
    assert (mark.source, mark.place) == (source, 40)
