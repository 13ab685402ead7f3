"""What a device lets out of an answer, and what the ledger says of it."""

import pytest

from dragonrt.errors import DragonError
from dragonrt.modes.blocks.messages import Block, Upload, Verdict
from dragonrt.modes.dragon.messages import Draft, EntryRequest, EntryResponse
from dragonrt.modes.messages import Target
from dragonrt.modes.question import Question
from dragonrt.privacy.disclosure import RULES, Door
from dragonrt.traces.events import Disclosed
from dragonrt.wire import messages as wire
from dragonrt.wire.reasons import Reason
from dragonrt.wire.values import pack

ASKED = Question(
    prompt="où?", instructions="short", history=(("who?", "Tom"),), accepted=(7, 3, 8, 3)
)
SOURCES = wire.Attribution((wire.Source("a title", "a.md", 0.5),))
DRAFT = Draft(1, 5, 0, 9, 0.0, 0, 0, 0, b"abc")
SENT = {
    wire.Open(1, "dragon", pack(ASKED), ()): Disclosed("open", 9, 7, 4),
    DRAFT: Disclosed("draft", 0, 0, 1, 1, step=5, token=9),
    Target(1, 5, 0, 9, "device"): Disclosed("target", 0, 0, 1),
    EntryRequest(1, 5, 0, (2, 4)): Disclosed("entryrequest", 0, 0, 2),
    EntryResponse(1, 5, 0, bytes(16)): Disclosed("entryresponse", 0, 0, 0, 1),
    Block(1, 1, 5, 0, 2, (), (8, 9), bytes(8)): Disclosed("block", 0, 0, 4),
    Block(1, 1, 5, 0, 2, (), (), bytes(9)): Disclosed("block", 0, 0, 2, 2),
    Block(1, 1, 5, 0, 2, (64,), (), bytes(5)): Disclosed("block", 0, 0, 2, 2),
    Upload(1, 1, 0.0, 0, (b"a", b"b")): Disclosed("upload", 0, 0, 0, 2),
    Verdict(1, 1, 0, 3, 0): Disclosed("verdict", 0, 0, 1),
    wire.Close(1, Reason.FINISHED, "", 0, SOURCES): Disclosed("close", documents=1),
    wire.Close(1, Reason.FINISHED): Disclosed("close"),
}


class Other(wire.SessionMessage, frozen=True):
    """A message of a mode from outside."""


def test_every_message_has_a_rule() -> None:
    assert set(RULES) == set(wire.SESSION_MESSAGES)


@pytest.mark.parametrize("message", SENT, ids=lambda each: type(each).__name__)
def test_the_entry_follows_from_the_message(message: wire.SessionMessage) -> None:
    assert Door(keeps_drafts=False).entry(message) == SENT[message]


@pytest.mark.parametrize("message", SENT, ids=lambda each: type(each).__name__)
def test_neither_distributions_nor_titles_pass_a_device_that_keeps_its_drafts(
    message: wire.SessionMessage,
) -> None:
    entry = Door(keeps_drafts=True).entry(message)
    withheld = SENT[message].distributions or SENT[message].documents
    assert entry == (None if withheld else SENT[message])


def test_a_marker_discloses_no_token() -> None:
    door = Door(True, marker=(3, 4))
    assert door.entry(Target(1, 5, 0, 3, "device")) == Disclosed("target")
    resumed = door.entry(wire.Open(1, "dragon", pack(ASKED), ()))
    assert resumed is not None
    assert resumed.tokens == 2


def test_a_message_without_a_rule_never_leaves() -> None:
    with pytest.raises(DragonError):
        Door(keeps_drafts=False).entry(Other(1))
