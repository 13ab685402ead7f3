"""Traces of both sides on one clock, and the messages between them.

With both sides' traces every message has its two ends. Clocks of different hosts are aligned by the
messages: the fastest one of each direction is assumed to take the same time (as in NTP).
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dragonrt.errors import DragonError
from dragonrt.side import Side, other
from dragonrt.traces import events
from dragonrt.traces.answers import of_type
from dragonrt.traces.events import Record


@dataclass(frozen=True, slots=True)
class Flight:
    """A message in transit, by the records of its ends; `arrived` is None if unknown."""

    message: str
    sent: Record
    arrived: Record | None


def aligned(traces: Sequence[Sequence[Record]]) -> dict[Side, list[Record]]:
    """Return the records of one or two sides on one clock, the first file's.

    Raises DragonError for two traces of the same side.
    """
    by_side = {records[0].side: list(records) for records in traces}
    if len(by_side) < len(traces):
        raise DragonError("both files are traces of the same side: give one of each")
    if len(by_side) == 2:
        first, second = by_side
        by_side[second] = moved(by_side[second], _shift(first, by_side))
    return by_side


def moved(records: Sequence[Record], seconds: float) -> list[Record]:
    """Return the records, each so much later."""
    return [replace(record, t=record.t + seconds) for record in records]


def _shift(first: Side, by_side: Mapping[Side, Sequence[Record]]) -> float:
    """Return the seconds to add to the second file's times."""
    clocks = [next(of_type(each, events.TraceStarted)).event.clock for each in by_side.values()]
    if clocks[0] == clocks[1]:
        return 0.0
    fastest: dict[Side, float] = {}
    for flight in flights(by_side, check=False):
        if flight.arrived is not None:
            needed_s, sender = flight.arrived.t - flight.sent.t, flight.sent.side
            fastest[sender] = min(needed_s, fastest.get(sender, needed_s))
    if len(fastest) < 2:
        raise DragonError("the two traces have no messages in common: are they of one run?")
    return (fastest[other(first)] - fastest[first]) / 2


def flights(by_side: Mapping[Side, Sequence[Record]], *, check: bool = True) -> Iterator[Flight]:
    """Pair every message sent with the first unpaired one received of its kind, step and round.

    `check` skips those received before they were sent, as after a lost connection.
    """
    sent: list[tuple[tuple[object, ...], Record, str]] = []
    received: dict[tuple[object, ...], deque[Record]] = defaultdict(deque)
    for side, records in by_side.items():
        for record in records:
            event = record.event
            if isinstance(event, events.MessageSent | events.MessageReceived):
                # Devices number their sessions alike.
                kind = record.session, event.message, event.step, event.round
                if isinstance(event, events.MessageSent):
                    sent.append(((side, *kind), record, event.message))
                else:
                    received[other(side), *kind].append(record)
    for key, record, message in sent:
        arrived = received[key]
        while check and arrived and arrived[0].t < record.t:
            arrived.popleft()
        yield Flight(message, record, arrived.popleft() if arrived else None)
