"""Where events become records: stamped with the time, their side and session, and handed on."""

from collections.abc import Callable

from dragonrt.side import Side
from dragonrt.traces.events import Event, Record

Sink = Callable[[Record], None]
"""Takes every record: a trace's file, a fold, a test."""


class Recorder:
    """Makes a Record of every event of one side, on `clock`; `peer` names a cloud's device."""

    def __init__(
        self, clock: Callable[[], float], side: Side, sinks: list[Sink], peer: str = ""
    ) -> None:
        self.side = side
        self._clock = clock
        self._sinks = sinks
        self._peer = peer

    def event(self, session: int, event: Event) -> Record:
        """Record an event of a session; 0 is none."""
        record = Record(self._clock(), self.side, session, event, self._peer)
        for sink in self._sinks:
            sink(record)
        return record

    def of(self, peer: str) -> "Recorder":
        """The same, for the events of one connection."""
        return Recorder(self._clock, self.side, self._sinks, peer)
