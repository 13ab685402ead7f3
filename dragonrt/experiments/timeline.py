"""Traces as a timeline of one answer: what both sides did, what travelled, what was decided.

Pure: events in, values out. With both sides' traces every message has its two ends. Clocks of
different hosts are brought together by the messages themselves: the fastest one of each direction
is taken to have needed the same time (as NTP does).
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dragonrt.errors import DragonError
from dragonrt.side import Side, other

Event = dict[str, Any]
"""One line of a trace, as `trace_summary.read_events` returns it."""

SIDES: tuple[Side, ...] = ("device", "cloud")


class TimelineError(DragonError):
    """Traces that do not belong together, or hold no answer."""


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward that made drafts of `tokens` steps from `step` on.

    `accepted` is whether the draft of `step` became the target token; None where it was never
    compared, since the line it was made for had died.
    """

    start_s: float
    end_s: float
    step: int
    tokens: int
    accepted: bool | None


@dataclass(frozen=True, slots=True)
class Flight:
    """A message on its way. `end_s` is None where only the sender's trace is known.

    `peer` is the device's address, as a cloud's trace has it, where that is known.
    """

    sender: Side
    session: int
    peer: str | None
    message: str
    start_s: float
    end_s: float | None
    step: int | None
    bytes: int


@dataclass(frozen=True, slots=True)
class Decision:
    """A target token as one side decided it, or heard of it (cause target)."""

    time_s: float
    step: int
    cause: str
    accepted: dict[Side, bool | None]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the aggregator expected of a step: ΔZ of the device and the round trip, in seconds."""

    time_s: float
    step: int
    difference_s: float
    rtt_s: float


@dataclass(frozen=True, slots=True)
class Track:
    """One side of an answer. `stopped` are the (start, end) of preempted forwards."""

    forwards: tuple[Forward, ...]
    decisions: tuple[Decision, ...]
    stopped: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One answer. Times are seconds since it was asked; `switches` are (time, new aggregator)."""

    title: str
    tracks: dict[Side, Track]
    flights: tuple[Flight, ...]
    switches: tuple[tuple[float, Side], ...]
    estimates: tuple[Estimate, ...]
    rtts: tuple[tuple[float, float], ...]

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decisions of the side that is traced, the device's where both are."""
        return next(self.tracks[side].decisions for side in SIDES if side in self.tracks)


def aligned(traces: Sequence[Sequence[Event]]) -> dict[Side, list[Event]]:
    """The events of one or two sides on one clock, the first file's.

    Raises TimelineError for two traces of the same side.
    """
    by_side: dict[Side, list[Event]] = {}
    for events in traces:
        if events[0]["side"] in by_side:
            raise TimelineError("both files are traces of the same side: give one of each")
        by_side[events[0]["side"]] = list(events)
    if len(by_side) == 2:
        (first, ours), (_, theirs) = by_side.items()
        shift_s = _shift(first, by_side, ours, theirs)
        for event in theirs:
            event["t"] += shift_s
    return by_side


def _shift(
    first: Side, by_side: dict[Side, list[Event]], ours: list[Event], theirs: list[Event]
) -> float:
    """Seconds to add to the second file's times."""
    clock = ours[0].get("clock")
    if clock is not None and clock == theirs[0].get("clock"):
        return 0.0
    fastest: dict[Side, float] = {}
    for flight in flights(by_side, check=False):
        if flight.end_s is not None:
            needed_s = flight.end_s - flight.start_s
            fastest[flight.sender] = min(needed_s, fastest.get(flight.sender, needed_s))
    if len(fastest) < 2:
        raise TimelineError("the two traces have no messages in common: are they of one run?")
    there_s = fastest.pop(first)
    back_s = fastest.popitem()[1]
    return (back_s - there_s) / 2


def timeline(by_side: dict[Side, list[Event]], session: int | None = None) -> Timeline:
    """One answer of traces that `aligned` returned: that session's, else the one of most tokens.

    Raises TimelineError where there is no such answer.
    """
    side = next(side for side in SIDES if side in by_side)
    opened = _longest(by_side[side], session)
    chosen = {side: _answer(by_side[side], opened)}
    for each, events in by_side.items():
        if each != side:
            twin = _twin(events, opened, chosen[side])
            chosen[each] = _answer(events, twin)
    start_s = opened["t"]
    for events in chosen.values():
        for event in events:
            event["t"] -= start_s
    end_s = max(event["t"] for events in chosen.values() for event in events)
    probes = (event for event in by_side[side] if event["event"] == "probe" and "rtt" in event)
    both = sorted((event for events in chosen.values() for event in events), key=_time)
    estimates = [event for event in both if event["event"] == "estimate"]
    return Timeline(
        title=f"{opened.get('rule', '?')}, {opened.get('aggregator', opened.get('mode', '?'))}",
        tracks={each: _track(each, events) for each, events in chosen.items()},
        flights=tuple(flights(chosen)),
        switches=tuple((event["t"], event["to"]) for event in both if event["event"] == "switch"),
        estimates=tuple(
            Estimate(event["t"], event["step"], event["difference"], event["rtt"])
            for event in estimates
        ),
        rtts=tuple(
            (event["t"] - start_s, event["rtt"])
            for event in probes
            if 0 <= event["t"] - start_s <= end_s
        ),
    )


def _time(event: Event) -> float:
    return float(event["t"])


def _longest(events: list[Event], session: int | None) -> Event:
    """The `open` event of the answer to show."""
    tokens: dict[int, int] = defaultdict(int)
    opens: list[Event] = []
    current: dict[tuple[Any, int], int] = {}
    for event in events:
        key = _key(event)
        if event["event"] == "open":
            current[key] = len(opens)
            opens.append(event)
        elif event["event"] == "decide" and key in current:
            tokens[current[key]] += 1
    found = [
        number
        for number, event in enumerate(opens)
        if tokens[number] and session in (None, event["session"])
    ]
    if not found:
        which = "answer" if session is None else f"answer of session {session}"
        raise TimelineError(f"there is no {which} with tokens in the {events[0]['side']}'s trace")
    return opens[max(found, key=lambda number: (tokens[number], number))]


def _answer(events: list[Event], opened: Event) -> list[Event]:
    """Copies of the events of the answer that `opened` begins, the message Open included."""
    first = next(number for number, event in enumerate(events) if event is opened)
    key = _key(opened)
    start = first
    while start > 0 and events[start - 1]["event"] != "close":
        start -= 1
    own = [
        number
        for number in range(start, first)
        if events[number].get("message") in ("open", "openblocks") and _key(events[number]) == key
    ]
    kept: list[Event] = []
    for event in events[own[-1] if own else first :]:
        if _key(event) != key:
            continue
        if event["event"] == "open" and event is not opened:
            break
        kept.append(event)
    return [dict(event) for event in kept]


def _twin(events: list[Event], opened: Event, answer: list[Event]) -> Event:
    """The `open` event of the same answer on the other side: session, seed, and most tokens."""
    decided = {(event["step"], event["token"]) for event in answer if event["event"] == "decide"}
    best: tuple[int, Event] | None = None
    for event in events:
        same = all(event.get(name) == opened.get(name) for name in ("event", "session", "seed"))
        if not same:
            continue
        theirs = {
            (each["step"], each["token"])
            for each in _answer(events, event)
            if each["event"] == "decide"
        }
        common = len(theirs & decided)
        if best is None or common > best[0]:
            best = (common, event)
    if best is None:
        raise TimelineError(
            f"session {opened['session']} is in one of the two traces only: are they of one run?"
        )
    return best[1]


def _track(side: Side, events: list[Event]) -> Track:
    decisions = tuple(
        Decision(
            event["t"],
            event["step"],
            event["cause"],
            {each: event.get(each) for each in SIDES},
        )
        for event in events
        if event["event"] == "decide"
    )
    return Track(
        forwards=_forwards(side, events),
        decisions=decisions,
        stopped=tuple(
            (event["t"] - event["seconds"], event["t"])
            for event in events
            if event["event"] == "stopped"
        ),
    )


def _forwards(side: Side, events: list[Event]) -> tuple[Forward, ...]:
    """All forwards; the last one of a step before its decision is the one that was compared."""
    compared: dict[int, int] = {}
    accepted: dict[int, bool | None] = {}
    forwards: list[Event] = []
    for event in events:
        if event["event"] == "decode":
            for step in range(event["step"], event["step"] + event["tokens"]):
                if step not in accepted:
                    compared[step] = len(forwards)
            forwards.append(event)
        elif event["event"] == "decide":
            accepted[event["step"]] = event.get(side)
    return tuple(
        Forward(
            event["t"] - event["seconds"],
            event["t"],
            event["step"],
            event["tokens"],
            accepted.get(event["step"]) if compared.get(event["step"]) == number else None,
        )
        for number, event in enumerate(forwards)
    )


def flights(by_side: dict[Side, list[Event]], *, check: bool = True) -> Iterator[Flight]:
    """Every message with both its ends: the first one not yet received of its kind, step and round.

    `check` leaves out ends before their beginnings, as a lost connection leaves them.
    """
    received: dict[tuple[Any, ...], deque[Event]] = defaultdict(deque)
    for side, events in by_side.items():
        for event in events:
            if event["event"] == "receive":
                sender = other(side)
                received[(sender, *_kind(event))].append(event)
    for side, events in by_side.items():
        for event in events:
            if event["event"] != "send":
                continue
            arrived = received[(side, *_kind(event))]
            while check and arrived and arrived[0]["t"] < event["t"]:
                arrived.popleft()
            end = arrived.popleft() if arrived else None
            peer = event.get("peer") or (end or event).get("peer")
            yield Flight(
                side,
                event["session"],
                peer,
                event["message"],
                event["t"],
                end["t"] if end else None,
                event.get("step"),
                event["bytes"],
            )


def _key(event: Event) -> tuple[Any, int]:
    """Devices number their sessions alike."""
    return event.get("peer"), event["session"]


def _kind(event: Event) -> tuple[Any, ...]:
    return event["session"], event["message"], event.get("step"), event.get("round")
