"""The messages that a level admits, their entries in the ledger, and the marked transcript."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from dragonrt.distributions import codec, encode_block
from dragonrt.errors import DragonError
from dragonrt.modes.dragon.drafts import Draft
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.messages import Block, Target, Upload, Verdict
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.privacy.disclosure import RULES, Disclosure, Door, longest_redacted, redacted
from dragonrt.traces.events import Disclosed
from dragonrt.wire import messages as wire
from dragonrt.wire.fields import pack
from dragonrt.wire.reasons import Reason

ASKED = Question(
    prompt="où?", instructions="short", history=(("who?", "Tom"),), accepted=(7, 3, 8, 3)
)
SOURCES = wire.Attribution((wire.Source("a title", "a.md", 0.5),))
IDS = encode_block(codec("ids", 16), (2, 4), ())
DRAFT = Draft(1, 5, 0, 9, 0.0, 0, 0, 0, b"abc")
SENT = {
    wire.Open(1, "dragon", pack(ASKED), ()): Disclosed("open", 9, 7, 4),
    DRAFT: Disclosed("draft", 0, 0, 1, 1, step=5, token=9),
    Target(1, 5, 0, 9, "device"): Disclosed("target", 0, 0, 1),
    Block(1, 1, 5, 0, 2, (), (8, 9), IDS): Disclosed("block", 0, 0, 4),
    Block(1, 1, 5, 0, 2, (), (), bytes(2)): Disclosed("block", 0, 0, 2, 2),
    Upload(1, 1, 0.0, 0, (b"a", b"b")): Disclosed("upload", 0, 0, 0, 2),
    Verdict(1, 1, 0, 3, 0): Disclosed("verdict", 0, 0, 1),
    wire.Close(1, Reason.FINISHED, "", 0, SOURCES): Disclosed("close", documents=1),
    wire.Close(1, Reason.FINISHED): Disclosed("close"),
}


class Other(wire.SessionMessage, frozen=True):
    """A message without a rule."""


def test_every_message_has_a_rule() -> None:
    assert set(RULES) == set(wire.SESSION_MESSAGES)


@pytest.mark.parametrize("message", SENT, ids=lambda each: type(each).__name__)
def test_the_entry_follows_from_the_message(message: wire.SessionMessage) -> None:
    assert Door(keeps_drafts=False).entry(message) == SENT[message]


@pytest.mark.parametrize("message", SENT, ids=lambda each: type(each).__name__)
def test_a_device_that_keeps_drafts_sends_no_titles_or_masses(message: wire.SessionMessage) -> None:
    door, sent = Door(keeps_drafts=True), SENT[message]
    withheld = sent.distributions or sent.documents
    assert door.entry(message) == (None if withheld or sent.tokens else sent)


def target(step: int, token: int) -> Target:
    return Target(1, step, 0, token, "device")


def reopened(*accepted: int, **other: Any) -> wire.Open:
    return wire.Open(1, "dragon", pack(replace(ASKED, accepted=accepted, **other)), ())


def test_a_device_that_keeps_drafts_sends_decided_tokens() -> None:
    door = Door(True)
    assert door.entry(target(0, 9)) is None
    door.decide(9, withheld=False)
    door.decide(8, withheld=False)
    for message in (target(0, 9), target(1, 8), reopened(9, 8), reopened(9)):
        assert door.entry(message) is not None
    for message in (target(0, 8), target(2, 7), reopened(9, 7), reopened(8)):
        assert door.entry(message) is None
    ids = Block(1, 1, 2, 0, 2, (), (8,), IDS)
    assert door.entry(ids) is None, "its payload has drafts"


def test_the_transcript_passes_and_what_is_withheld_does_not() -> None:
    door, marker = Door(True, marker=(3, 4)), [3, 4]
    for token, withheld in ((9, False), (8, True), (7, True), (6, False)):
        door.decide(token, withheld=withheld)
    told = [9, *marker, 6]
    assert [door.entry(target(step, token)) for step, token in enumerate(told)] == [
        Disclosed("target", tokens=int(token not in marker)) for token in told
    ]
    resumed = door.entry(reopened(*told))
    assert resumed is not None
    assert resumed.tokens == 2
    for message in (target(1, 8), target(1, 7), target(3, 8), reopened(9, 8), reopened(9, 6)):
        assert door.entry(message) is None


@pytest.mark.parametrize("keeps", [True, False])
def test_a_mode_asks_with_the_history_that_was_told(keeps: bool) -> None:
    asked = replace(ASKED, shown=("T…",)).resumed(())
    door = Door(keeps, asked=pack(asked))
    assert door.entry(reopened(history=asked.history)) is not None
    assert door.entry(reopened()) is None
    other = door.entry(reopened(history=asked.history, prompt="as a document says"))
    assert (other is None) == keeps


def test_a_message_without_a_rule_never_leaves() -> None:
    with pytest.raises(DragonError):
        Door(keeps_drafts=False).entry(Other(1))


@pytest.mark.parametrize(
    ("how", "levels"),
    [
        ({}, [*Disclosure]),
        ({"disclose": Disclosure.ANSWER}, [Disclosure.ANSWER, Disclosure.REDACTED]),
        ({"disclose": Disclosure.REDACTED}, [Disclosure.REDACTED]),
        ({"aggregator": "cloud"}, [Disclosure.DRAFTS]),
        ({"rule": "algorithm1", "aggregator": "device"}, [Disclosure.DRAFTS, Disclosure.ANSWER]),
    ],
)
def test_no_level_discloses_more_than_the_settings(how: Any, levels: list[Disclosure]) -> None:
    settings = DragonSettings(**how)
    assert settings.levels[0] is settings
    assert [each.level for each in settings.levels] == levels


def test_a_mode_without_levels_has_its_settings_alone() -> None:
    settings = SpeculativeSettings()
    assert (settings.level, settings.levels) == (None, (settings,))


MARKER = (3, 4)


def test_there_is_room_for_the_longest_reading() -> None:
    for count, marker in product(range(1, 8), ((3,), MARKER, (3, 4, 5))):
        runs = product((False, True), repeat=count)
        longest = max(len(redacted([(7, each) for each in run], marker)) for run in runs)
        assert longest <= longest_redacted(count, marker) <= longest + 1
