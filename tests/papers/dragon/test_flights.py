"""Traces of two sides: both ends of every message."""

from collections.abc import Callable, Sequence

import pytest

from dragonrt.errors import DragonError
from dragonrt.side import Side
from dragonrt.traces import events
from dragonrt.traces.events import Record
from scripts.papers.dragon.timeline import Flight, by_side, flights
from tests.traces.conftest import make_trace

MakeTrace = Callable[..., list[Record]]


@pytest.fixture
def trace() -> MakeTrace:
    return make_trace


def flown(traces: Sequence[list[Record]]) -> list[Flight]:
    return [*flights(by_side(traces))]


def needed(found: Sequence[Flight]) -> list[tuple[Side, float]]:
    """The sender of each message and how long it was under way, in the order of sending."""
    ends = [(one.sent, one.arrived or one.sent) for one in found]
    return [(sent.side, arrived.t - sent.t) for sent, arrived in ends]


def test_every_message_has_both_ends(trace: MakeTrace) -> None:
    found = flown([trace("cloud"), trace("device")])
    assert len(found) == 6
    senders, under_way_s = zip(*needed(found), strict=True)
    assert sorted(senders) == ["cloud"] * 3 + ["device"] * 3
    assert under_way_s == pytest.approx([0.05] * 6)


def test_a_verdict_never_arrives_as_the_one_of_another_round() -> None:
    """The first was received before its sender had noted it."""

    def records(
        side: Side, kind: type[events.MessageSent | events.MessageReceived], *times: float
    ) -> list[Record]:
        return [
            Record(t, side, 1, kind("verdict", 9, round=number))
            for number, t in enumerate(times, start=1)
        ]

    sent, received = (
        records("cloud", events.MessageSent, 2, 3),
        records("device", events.MessageReceived, 1.9, 3.1),
    )
    found = flights({"device": received, "cloud": sent})
    assert [(one.sent.t, one.arrived and one.arrived.t) for one in found] == [(2, None), (3, 3.1)]


def test_a_slower_direction_does_not_look_even(trace: MakeTrace) -> None:
    late = flown([trace("device"), trace("cloud", 0.02)])
    assert dict(needed(late)) == {"device": pytest.approx(0.07), "cloud": pytest.approx(0.03)}


def test_traces_of_one_side_or_two_clocks_are_refused(trace: MakeTrace) -> None:
    with pytest.raises(DragonError):
        by_side([trace("device"), trace("device")])
    with pytest.raises(DragonError):
        by_side([trace("device"), trace("cloud", clock="another")])
