"""Traces as files: one line of JSON per record; the first has the event `start`.

A line has `t`, `side`, `session`, `event`, `peer`, and the event's fields, except default values.
"""

import json
import logging
import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from msgspec import ValidationError, convert, to_builtins

from dragonrt import __version__
from dragonrt.errors import DragonError
from dragonrt.side import Side
from dragonrt.traces.events import AnswerClosed, Event, Record, TraceStarted
from retrieval.files import create, opened

log = logging.getLogger("dragonrt")

SCHEMA = 8
"""Raised with every change of a field; files of another number are refused."""
WRITTEN_AT_ONCE = (TraceStarted, AnswerClosed)
"""Events after which the file is flushed, so that a killed process loses at most one answer."""

Sink = Callable[[Record], None]
"""A consumer of records: a trace's `write`, a fold's `take`."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """Makes Records of events, with times of `clock` in seconds, and passes them to all `sinks`."""

    clock: Callable[[], float]
    side: Side
    sinks: tuple[Sink, ...] = ()
    peer: str = ""

    def event(self, session: int, event: Event) -> None:
        """Record an event of the session with that number, 0 if it belongs to none."""
        if self.sinks:
            record = Record(round(self.clock(), 6), self.side, session, event, self.peer)
            for sink in self.sinks:
                sink(record)

    def of(self, peer: str) -> "Recorder":
        return replace(self, peer=peer)

    def also(self, sink: Sink) -> "Recorder":
        return replace(self, sinks=(*self.sinks, sink))


class TraceFile:
    """A new trace file, which only its owner can read. The first record must be that of `start`.

    Raises DragonError if it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file: TextIOWrapper | None = TextIOWrapper(create(path), encoding="utf-8")
        except OSError as error:
            raise DragonError(f"cannot write the trace {path}: {error.strerror}") from None

    def write(self, record: Record) -> None:
        """Append a record. If the disk is full, log that the trace ends; raise nothing."""
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(to_object(record), separators=(",", ":")) + "\n")
            if isinstance(record.event, WRITTEN_AT_ONCE):
                self._file.flush()
        except OSError as error:
            log.warning("the trace ends here, it cannot be written: %s", error.strerror)
            self.close()

    def close(self) -> None:
        file, self._file = self._file, None
        with suppress(OSError):  # what it still holds cannot be written
            if file is not None:
                file.close()


def start(model: str) -> TraceStarted:
    """Return the event that begins every trace file; `model` is the name of this side's model."""
    try:  # two processes read the same monotonic clock on one host since one boot
        clock = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        clock = platform.node()
    return TraceStarted(SCHEMA, __version__, model, clock)


def read_trace(path: Path) -> list[Record]:
    """Return the records of a trace file. A last line that was cut off, as by a kill, is ignored.

    Raises DragonError, naming the line, if it cannot be read or is no trace of this version.
    """
    try:
        with TextIOWrapper(opened(path), encoding="utf-8", errors="replace") as file:
            lines = list(file)
    except OSError as error:
        raise DragonError(f"cannot read the trace {path}: {error.strerror}") from None
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
        except ValueError:
            if number == len(lines) and number > 1 and not line.endswith("\n"):
                break
            raise DragonError(f"{path} line {number} is not JSON: name a trace") from None
        if number == 1:
            _check_start(value, path)
        try:
            records.append(from_object(value))
        except DragonError as error:
            raise DragonError(f"{path} line {number} is not a trace event: {error}") from None
    if not records:
        raise DragonError(f"{path} is empty: name a trace")
    return records


def _check_start(value: object, path: Path) -> None:
    if not isinstance(value, dict) or value.get("event") != "start":
        raise DragonError(f"{path} line 1 is not the start of a trace: name a trace")
    schema = value.get("schema", 1)
    if schema != SCHEMA:
        raise DragonError(
            f"{path} is a trace of schema {schema}, and this version reads schema {SCHEMA}: "
            f"record it again, or read it with dragonrt {value.get('version', 'of its time')}"
        )


def to_object(record: Record) -> dict[str, Any]:
    """Return a record as the JSON object of a line in a trace; `from_object` is the inverse."""
    found: dict[str, Any] = to_builtins(record)
    event: dict[str, Any] = found.pop("event")
    return found | event


def own_fields(event: Event) -> dict[str, Any]:
    """Return an event's fields by name, as in a trace file: without those with default values."""
    return {name: value for name, value in to_builtins(event).items() if name != "event"}


def from_object(value: Any) -> Record:
    """Return the record of a line's JSON object. Raises DragonError if the object is no record."""
    try:
        fields = convert(value, dict[str, Any])
        own = {name: fields.pop(name) for name in _OWN & fields.keys()}
        return convert({**own, "event": fields}, Record)
    except ValidationError as error:
        raise DragonError(str(error)) from None


_OWN = set(Record.__struct_fields__) - {"event"}
