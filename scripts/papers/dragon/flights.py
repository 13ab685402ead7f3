"""Messages of both sides' traces, each with its two ends."""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dragonrt.errors import DragonError
from dragonrt.side import Side, other
from dragonrt.traces import events
from dragonrt.traces.events import Record
from dragonrt.traces.statistics import of_type


@dataclass(frozen=True, slots=True)
class Flight:
    """A message in transit, by the records of its ends; `arrived` is None if unknown."""

    message: str
    sent: Record
    arrived: Record | None


def by_side(traces: Sequence[list[Record]]) -> dict[Side, list[Record]]:
    """Return one or two traces by their side.

    Raises DragonError for two traces of the same side, and of two clocks.
    """
    found = {records[0].side: records for records in traces}
    if len(found) < len(traces):
        raise DragonError("both files are traces of the same side: give one of each")
    if len({next(of_type(each, events.TraceStarted)).event.clock for each in traces}) > 1:
        raise DragonError("the traces are of two clocks: record both sides on one machine")
    return found


def flights(traces: Mapping[Side, Sequence[Record]]) -> Iterator[Flight]:
    """Pair every message sent with the first unpaired one received of its kind, step and round.

    Those received before they were sent, as after a lost connection, are skipped.
    """
    sent: list[tuple[tuple[object, ...], Record, str]] = []
    received: dict[tuple[object, ...], deque[Record]] = defaultdict(deque)
    for side, records in traces.items():
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
        while arrived and arrived[0].t < record.t:
            arrived.popleft()
        yield Flight(message, record, arrived.popleft() if arrived else None)
