"""Traces as files: one JSON object per line and record; the first one is `start`."""

import json
import logging
import platform
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from io import TextIOWrapper
from pathlib import Path
from typing import Self, TextIO

from dragonrt import __version__
from dragonrt.errors import DragonError
from dragonrt.side import Side
from dragonrt.traces.events import AnswerClosed, Event, Record, TraceStarted
from dragonrt.traces.schema import SCHEMA, TraceError, from_object, to_object
from retrieval.files import create, opened

log = logging.getLogger("dragonrt")

WRITTEN_AT_ONCE = (TraceStarted, AnswerClosed)
"""After these the file is up to date, so that a killed process loses at most one answer."""

Sink = Callable[[Record], None]
"""Whatever wants records: a trace's `write`, a fold's `take`."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """Makes records of what happens, on `clock` in microseconds, and hands them to all sinks.

    If it `keeps_inputs`, answers can be replayed.
    """

    clock: Callable[[], float]
    side: Side
    sinks: tuple[Sink, ...] = ()
    peer: str = ""
    keeps_inputs: bool = False

    def event(self, session: int, event: Event) -> None:
        """Record an event of a session, 0 for none."""
        if self.sinks:
            record = Record(round(self.clock(), 6), self.side, session, event, self.peer)
            for sink in self.sinks:
                sink(record)

    def of(self, peer: str) -> "Recorder":
        """For the events of one connection."""
        return replace(self, peer=peer)

    def also(self, sink: Sink) -> "Recorder":
        """For events that one sink more wants to know of."""
        return replace(self, sinks=(*self.sinks, sink))


class TraceFile:
    """Records as lines of a file, which is the caller's to begin with `start`."""

    def __init__(self, file: TextIO) -> None:
        self._file: TextIO | None = file

    @classmethod
    def open(cls, path: Path) -> Self:
        """A new file, its owner's alone; DragonError if it cannot be written."""
        try:
            return cls(TextIOWrapper(create(path), encoding="utf-8"))
        except OSError as error:
            raise DragonError(f"cannot write the trace {path}: {error.strerror}") from None

    def write(self, record: Record) -> None:
        """Write a record; where the disk refuses, no more, with a line: no answer fails for it."""
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
        """Write no more."""
        file, self._file = self._file, None
        with suppress(OSError):  # what it still holds cannot be written
            if file is not None:
                file.close()


def start(model: str) -> TraceStarted:
    """The first event of every file."""
    return TraceStarted(SCHEMA, __version__, model, _clock_name())


def _clock_name() -> str:
    """Equal for two processes exactly where they read the same monotonic clock: host and boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


def read_trace(path: Path) -> list[Record]:
    """The records of a file. Raises DragonError if it cannot be read, or is no such trace."""
    try:
        with TextIOWrapper(opened(path), encoding="utf-8", errors="replace") as lines:
            return read_records(lines, str(path))
    except OSError as error:
        raise DragonError(f"cannot read the trace {path}: {error.strerror}") from None


def read_records(lines: Iterable[str], name: str) -> list[Record]:
    """The records of a trace's lines; a last one that was cut off, as by a kill, is left out.

    Raises TraceError, naming `name` and the line, for anything else that is not a record.
    """
    kept = list(lines)
    records: list[Record] = []
    for number, line in enumerate(kept, start=1):
        try:
            value = json.loads(line)
        except ValueError:
            if number == len(kept) and number > 1 and not line.endswith("\n"):
                break
            raise TraceError(f"{name} line {number} is not JSON: is this a trace?") from None
        if number == 1:
            _check_start(value, name)
        try:
            records.append(from_object(value))
        except TraceError as error:
            raise TraceError(f"{name} line {number} is not a trace event: {error}") from None
    if not records:
        raise TraceError(f"{name} is empty: is this a trace?")
    return records


def _check_start(value: object, name: str) -> None:
    if not isinstance(value, dict) or value.get("event") != TraceStarted.KIND:
        raise TraceError(f"{name} line 1 does not begin a trace: is this a trace?")
    schema = value.get("schema", 1)
    if schema != SCHEMA:
        raise TraceError(
            f"{name} is a trace of schema {schema}, and this version reads schema {SCHEMA}: "
            f"record it again, or read it with dragonrt {value.get('version', 'of its time')}"
        )
