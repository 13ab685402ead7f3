"""Traces of two sides: both ends of every message, on one clock."""

from collections.abc import Callable, Sequence

import pytest

from dragonrt.errors import DragonError
from dragonrt.side import Side
from dragonrt.traces import events
from dragonrt.traces.events import Record
from dragonrt.traces.timeline import Flight, aligned, flights

MakeTrace = Callable[..., list[Record]]


def flown(traces: Sequence[list[Record]]) -> list[Flight]:
    return [*flights(aligned(traces))]


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


def test_clocks_of_two_hosts_are_brought_together_by_the_messages(trace: MakeTrace) -> None:
    together = flown([trace("device"), trace("cloud")])
    for traces in (
        [trace("device"), trace("cloud", 1234.5, "another")],
        [trace("cloud", -1234.5, "another"), trace("device")],
    ):
        apart = flown(traces)
        starts = [sorted(one.sent.t for one in found) for found in (together, apart)]
        ours, theirs = ([t - each[0] for t in each] for each in starts)
        assert ours == pytest.approx(theirs)
        assert [each for _, each in needed(apart)] == pytest.approx([0.05] * 6)


def test_a_common_clock_is_believed(trace: MakeTrace) -> None:
    """A link that is slower in one direction must not look even."""
    late = flown([trace("device"), trace("cloud", 0.02)])
    assert dict(needed(late)) == {"device": pytest.approx(0.07), "cloud": pytest.approx(0.03)}


def test_traces_that_do_not_belong_together_are_one_line(trace: MakeTrace) -> None:
    with pytest.raises(DragonError):
        aligned([trace("device"), trace("device")])
    with pytest.raises(DragonError):
        aligned([trace("device"), trace("cloud", clock="another")[:2]])
