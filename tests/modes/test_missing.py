"""Entries that a race lacks: asked for once, given while they are remembered, refused otherwise."""

from dataclasses import replace

import numpy as np
import pytest

from dragonrt.distributions import CodecError, Step, codec, encode_distribution
from dragonrt.distributions.race_codec import LARGEST_TAU, OwnRace
from dragonrt.modes.deciding import Missing, decoded
from dragonrt.modes.drafts import DraftQueue, SideDraft
from dragonrt.modes.missing import FALL, LEAST_TAU, REQUESTS, MissingEntries
from dragonrt.modes.mode import ModeError
from dragonrt.wire import messages as wire
from dragonrt.wire.limits import MAX_WANTED

RACE = codec("race", 40)
P = np.geomspace(1, 1e-3, 40)


def draft(step: int, p: np.ndarray = P, *, own: bool = True) -> SideDraft:
    """A draft as its side knows it, or as it came to the other one."""
    quantized = RACE.quantize(p, Step(step))
    payload = encode_distribution(RACE, quantized)
    sent = SideDraft(step, 100 + step, 0, payload, 0.0, 0.0)
    return replace(sent, distribution=quantized.distribution) if own else decoded(RACE, sent)


def wanted(step: int, *tokens: int) -> wire.EntryRequest:
    return wire.EntryRequest(1, step, 100 + step, tokens)


def asking(step: int, *tokens: int) -> tuple[MissingEntries, DraftQueue]:
    """A side that has asked for tokens of the other's draft of that step."""
    missing, theirs = MissingEntries(RACE, 4), DraftQueue(8)
    theirs.put(draft(step, own=False))
    assert missing.ask(1, Missing(step, 100 + step, tokens)) == wanted(step, *sorted(tokens))
    return missing, theirs


def test_what_is_given_joins_the_draft_that_lacked_it() -> None:
    missing, theirs = asking(2, 39, 30)
    assert missing.awaits(2, 102)
    own = DraftQueue(8)
    own.put(draft(2))
    given = MissingEntries(RACE, 4).answer(wanted(2, 30, 39), own)
    missing.take(given, theirs)
    assert not missing.awaits(2, 102)
    full, found = draft(2).distribution, theirs.get(2, 102)
    assert full is not None
    assert found is not None
    assert found.distribution is not None
    assert [found.distribution.probability(t) for t in (30, 39)] == [
        full.probability(t) for t in (30, 39)
    ]
    with pytest.raises(ModeError, match="not asked for"):
        missing.take(given, theirs)


def test_what_was_not_asked_for_is_refused() -> None:
    missing, theirs = asking(2, 30)
    with pytest.raises(ModeError, match="not asked for"):
        missing.take(wire.EntryResponse(1, 3, 103, bytes(8)), theirs)
    with pytest.raises(CodecError):
        missing.take(wire.EntryResponse(1, 2, 102, bytes(16)), theirs)


def test_no_more_is_asked_for_at_once_than_a_message_holds() -> None:
    many = range(2 * MAX_WANTED)
    message = MissingEntries(RACE, 4).ask(1, Missing(0, 100, many))
    assert message.tokens == tuple(range(MAX_WANTED))


def test_a_new_session_has_asked_for_nothing() -> None:
    missing, _ = asking(2, 30)
    missing.clear()
    assert not missing.awaits(2, 102)


def test_of_decided_steps_only_what_may_be_missing_is_remembered() -> None:
    missing, queue = MissingEntries(RACE, kept=2), DraftQueue(8)
    reversed_draft = draft(0, P[::-1].copy(), own=False)
    for step in range(3):
        theirs = replace(reversed_draft, step=step, prefix_hash=100 + step)
        missing.decided(draft(step), theirs)
        queue.decide(step)
    mine = draft(2).distribution
    assert isinstance(mine, OwnRace)
    given = missing.answer(wanted(2, 38, 39), queue)
    assert np.frombuffer(given.payload).tolist() == [mine.probability(38), mine.probability(39)]
    for forgotten in (wanted(0, 39), wanted(2, 5), replace(wanted(2, 39), prefix_hash=7)):
        with pytest.raises(ModeError, match="no such draft"):
            missing.answer(forgotten, queue)


def test_requests_lower_the_threshold_and_steps_without_one_raise_it() -> None:
    queue = DraftQueue(8)
    queue.put(draft(1))
    missing = MissingEntries(RACE, 4)
    start = missing.tau
    missing.answer(wanted(1, 39), queue)
    assert missing.tau == start * FALL
    for step in range(round(1 / REQUESTS) - 1):
        missing.decided(draft(step), None)
    assert missing.tau == pytest.approx(start), "at the wanted rate it stays where it is"
    for step in range(2000):
        missing.decided(draft(step), None)
    assert missing.tau == LARGEST_TAU
    for _ in range(50):
        missing.answer(wanted(1, 39), queue)
    assert missing.tau == LEAST_TAU
    fixed = MissingEntries(codec("race:0.2", 40), 4)
    fixed.answer(wanted(1, 39), queue)
    assert fixed.tau == 0.2
