"""Entries that a race lacks: requested once, sent while they are remembered, refused otherwise."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dragonrt.distributions import CodecError, Step, codec, encode_distribution
from dragonrt.distributions.race_codec import LARGEST_TAU, OwnRace
from dragonrt.modes.dragon.decision import Decided, Found, decoded
from dragonrt.modes.dragon.drafts import Drafts, SideDraft
from dragonrt.modes.dragon.messages import EntryRequest, EntryResponse
from dragonrt.modes.dragon.race import FALL, LEAST_TAU, REQUESTS, Race
from dragonrt.modes.dragon.resources import DragonResources
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.dragon.setup import DragonSetup
from dragonrt.modes.mode import ModeError
from dragonrt.modes.question import Question
from dragonrt.wire.limits import MAX_WANTED

RACE = codec("race", 40)
P = np.geomspace(1, 1e-3, 40)


@dataclass
class Machine:
    """Implements Machine: what a race sends, and what it calls."""

    session: int = 1
    decides: bool = True
    sent: list[Any] = field(default_factory=list)
    advanced: int = 0

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def emit(self, *found: Any) -> None:
        pass

    def advance(self, cause: str, now: float) -> None:
        self.advanced += 1


def draft(step: int, p: np.ndarray = P, *, own: bool = True) -> SideDraft:
    """A draft as its side knows it, or as it came to the other one."""
    quantized = RACE.quantize(p, Step(step))
    payload = encode_distribution(RACE, quantized)
    sent = SideDraft(step, 100 + step, 0, payload, 0.0, 0.0)
    return replace(sent, distribution=quantized.distribution) if own else decoded(RACE, sent)


def wanted(step: int, *tokens: int) -> EntryRequest:
    return EntryRequest(1, step, 100 + step, tokens)


def race(kept: int = 4, name: str = "race") -> tuple[Race, Drafts, Machine]:
    drafts, machine = Drafts(0, (), 8), Machine()
    settings = DragonSettings(codec=name, run_ahead=kept)
    setup = DragonSetup("device", Question(), settings, DragonResources(vocabulary=40))
    return Race(setup, drafts, machine), drafts, machine


def asking(step: int, tokens: Sequence[int]) -> tuple[Race, Drafts, Machine]:
    """A side that has requested tokens of the other's draft of that step."""
    asks, drafts, machine = race()
    theirs = draft(step, own=False)
    drafts.theirs.put(theirs)
    for _ in range(2):  # but once
        assert asks.settle(Found(draft(step), theirs, missing=tokens)) is None
    assert machine.sent == [wanted(step, *sorted(tokens[:MAX_WANTED]))]
    return asks, drafts, machine


def answered(of: tuple[Race, Drafts, Machine], request: EntryRequest) -> EntryResponse:
    of[0].handlers[EntryRequest](request, 0.0)
    response = of[2].sent[-1]
    assert isinstance(response, EntryResponse)
    return response


def decided(own: SideDraft, theirs: SideDraft | None = None) -> Decided:
    return Decided(own.step, 0, own, theirs)


def test_what_is_sent_joins_the_draft_that_lacked_it() -> None:
    asks, drafts, machine = asking(2, (39, 30))
    gives = race()
    gives[1].own.put(draft(2))
    response = answered(gives, wanted(2, 30, 39))
    asks.handlers[EntryResponse](response, 0.0)
    assert machine.advanced == 1
    full, found = draft(2).distribution, drafts.theirs.get(2, 102)
    assert full is not None
    assert found is not None
    assert found.distribution is not None
    assert [found.distribution.probability(t) for t in (30, 39)] == [
        full.probability(t) for t in (30, 39)
    ]
    with pytest.raises(ModeError):
        asks.handlers[EntryResponse](response, 0.0)


def test_what_was_not_requested_is_refused() -> None:
    for step, size, session in ((3, 8, False), (2, 16, False), (2, 8, True)):
        asks, _, _ = asking(2, (30,))
        if session:
            asks.on_session(0.0)
        with pytest.raises(CodecError if size > 8 else ModeError):
            asks.handlers[EntryResponse](EntryResponse(1, step, 100 + step, bytes(size)), 0.0)


def test_no_more_is_requested_at_once_than_a_message_holds() -> None:
    asking(0, range(2 * MAX_WANTED))


def test_of_decided_steps_only_what_may_be_missing_is_remembered() -> None:
    gives = race(kept=2)
    reversed_draft = draft(0, P[::-1].copy(), own=False)
    for step in range(3):
        theirs = replace(reversed_draft, step=step, prefix_hash=100 + step)
        gives[0].on_decision(decided(draft(step), theirs))
    mine = draft(2).distribution
    assert isinstance(mine, OwnRace)
    response = answered(gives, wanted(2, 38, 39))
    assert np.frombuffer(response.payload).tolist() == [mine.probability(38), mine.probability(39)]
    for forgotten in (wanted(0, 39), wanted(2, 5), structs.replace(wanted(2, 39), prefix_hash=7)):
        with pytest.raises(ModeError):
            answered(gives, forgotten)


def test_requests_lower_the_threshold_and_steps_without_one_raise_it() -> None:
    gives = side, drafts, _ = race()
    drafts.own.put(draft(1))
    start = side.tau
    answered(gives, wanted(1, 39))
    assert side.tau == start * FALL
    for step in range(round(1 / REQUESTS) - 1):
        side.on_decision(decided(draft(step)))
    assert side.tau == pytest.approx(start), "at the wanted rate it stays where it is"
    for step in range(2000):
        side.on_decision(decided(draft(step)))
    assert side.tau == LARGEST_TAU
    for _ in range(50):
        answered(gives, wanted(1, 39))
    assert side.tau == LEAST_TAU
    fixed = race(name="race:0.2")
    fixed[1].own.put(draft(1))
    answered(fixed, wanted(1, 39))
    assert fixed[0].tau == 0.2
