"""Traces as timelines of one answer, and both ends of every message."""

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from dragonrt.errors import DragonError
from dragonrt.side import Side
from dragonrt.traces import events
from dragonrt.traces.events import Record
from scripts.papers.dragon.timeline import Flight, by_side, flights, timeline
from tests.traces.conftest import make_trace

MakeTrace = Callable[..., list[Record]]


@pytest.fixture
def trace() -> MakeTrace:
    return make_trace


def test_the_compared_draft_is_the_last_before_the_decision(trace: MakeTrace) -> None:
    late = Record(10.55, "device", 1, events.ForwardDone(1, 1, 0.01))
    line = timeline(by_side([[*trace("device"), late], trace("cloud")]))
    found = [(one.step, one.accepted) for one in line.tracks["device"].forwards]
    assert found == [(0, True), (1, False), (2, None), (2, True), (1, None)]
    first = line.tracks["device"].forwards[0]
    assert (first.start_s, first.end_s) == pytest.approx((0.05, 0.1))
    (stopped,) = line.tracks["device"].stopped
    assert stopped == pytest.approx((0.49, 0.52))
    assert [one.event.step for one in line.decisions] == [0, 1, 2]
    assert line.title == "coupled, both"


def test_one_trace_alone_shows_its_own_side(trace: MakeTrace) -> None:
    line = timeline(by_side([trace("device")]))
    assert list(line.tracks) == ["device"]
    assert [flight.arrived for flight in line.flights] == [None] * 3
    (rtt,) = line.rtts
    assert rtt == pytest.approx((0.05, 0.1))
    assert [one.event.difference for one in line.estimates] == [-0.02]
    (switch,) = line.switches
    assert switch.time_s == pytest.approx(0.5)
    assert switch.event.to == "cloud"


def test_the_answer_of_a_session_is_found_on_both_sides(trace: MakeTrace) -> None:
    before = [replace(each, t=each.t - 20) for each in trace("cloud", seed=3)]
    line = timeline(by_side([trace("device"), [*before, *trace("cloud")[1:]]]))
    assert line.tracks["cloud"].decisions[0].time_s == pytest.approx(0.4)
    with pytest.raises(DragonError):
        timeline(by_side([trace("device")]), 2)


def test_the_last_of_the_longest_answers_is_shown(trace: MakeTrace) -> None:
    records = trace("device")
    short = [each for each in records if getattr(each.event, "step", 0) != 2]
    later = [replace(each, t=each.t + 20) for each in records]
    line = timeline(by_side([[*records, *later[1:], *short[1:]]]))
    assert [one.event.step for one in line.decisions] == [0, 1, 2]
    (rtt,) = line.rtts
    assert rtt == pytest.approx((0.05, 0.1))


def test_traces_without_a_common_answer_are_one_line(trace: MakeTrace) -> None:
    with pytest.raises(DragonError):
        timeline(by_side([trace("device"), trace("cloud", seed=8)]))
    with pytest.raises(DragonError):
        timeline(by_side([trace("device")[:3]]))


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
