"""Traces in the format of Chrome's trace viewer, which Perfetto reads as well.

Each side (and each device in a cloud's trace) is a process. A session has two threads: one for
decoding and decisions, one for messages. Arrows connect the ends of messages. Counters show round
trip, ΔZ and acceptance. Times are microseconds. Phases are those of the Trace Event Format: X a
slice, i an instant, C a counter, M a name, s and f the two ends of an arrow.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dragonrt.errors import DragonError
from dragonrt.side import Side
from dragonrt.traces import events
from dragonrt.traces.events import Record
from dragonrt.traces.schema import own_fields
from dragonrt.traces.timeline import flights
from retrieval.files import create

Object = dict[str, Any]
"""One event of the format."""

INSTANTS = {
    events.TokenDecided.KIND: "token {step}",
    events.RolledBack.KIND: "roll back to {step}",
    events.ForwardPreempted.KIND: "preempt {step}",
    events.AggregatorSwitched.KIND: "to {to}",
    events.TextsDiverged.KIND: "differ at {step}",
    events.WentAlone.KIND: "alone from {step}",
    events.Rejoined.KIND: "together from {step}",
}
COUNTERS = {
    events.LinkProbed.KIND: {"rtt": "round trip (s)", "bandwidth": "bandwidth (bit/s)"},
    events.LatencyEstimated.KIND: {
        "difference": "ΔZ (s)",
        "device": "acceptance, device",
        "cloud": "acceptance, cloud",
        "device_s": "a draft, device (s)",
        "cloud_s": "a draft, cloud (s)",
    },
}
MESSAGES = 1000
"""Thread numbers of sessions' messages start here."""


def write_chrome_trace(by_side: Mapping[Side, Sequence[Record]], path: Path) -> None:
    """Write the records of one or two sides, as `timeline.aligned` returned them."""
    text = json.dumps({"traceEvents": list(_objects(by_side)), "displayTimeUnit": "ms"})
    try:
        with create(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise DragonError(f"cannot write {path}: {error.strerror}") from None


def _objects(by_side: Mapping[Side, Sequence[Record]]) -> Iterator[Object]:
    processes: dict[tuple[Side, str], int] = {}
    busy_us: dict[tuple[int, int], int] = {}
    for record in (each for records in by_side.values() for each in records):
        name, session = (record.side, record.peer), record.session
        if name not in processes:
            processes[name] = len(processes) + 1
            label = f"{record.side}, for {record.peer}" if record.peer else record.side
            yield _named("process_name", processes[name], 0, label)
        process = processes[name]
        messages = isinstance(record.event, events.MessageSent | events.MessageReceived)
        thread = session + MESSAGES if messages else session
        if (process, thread) not in busy_us:
            busy_us[process, thread] = 0
            what = "messages" if messages else "decoding"
            label = f"session {session}: {what}" if session else f"connection: {what}"
            yield _named("thread_name", process, thread, label)
        for found in _of(record, {"pid": process, "tid": thread}):
            if found["ph"] == "X" and not messages:
                # Times in a trace are rounded one by one, and slices that overlap are no stack.
                end_us = found["ts"] + found["dur"]
                found["ts"] = max(found["ts"], busy_us[process, thread])
                found["dur"] = end_us - found["ts"]
                busy_us[process, thread] = end_us
            yield found
    for number, flight in enumerate(flights(by_side)):
        common = {"cat": "message", "name": flight.message, "id": number}
        # "bp": the arrow ends at the slice around it, not at the next one.
        for phase, end in (({"ph": "s"}, flight.sent), ({"ph": "f", "bp": "e"}, flight.arrived)):
            if end is not None and flight.arrived is not None:
                where = {"pid": processes[end.side, end.peer], "tid": end.session + MESSAGES}
                yield {**phase, **common, "ts": _us(end.t), **where}


def _named(kind: str, process: int, thread: int, name: str) -> Object:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _of(record: Record, where: Object) -> Iterator[Object]:
    """Yield one record as a slice, an instant or a counter."""
    event, time_us = record.event, _us(record.t)
    kind, fields = event.KIND, own_fields(event)
    match event:
        case events.ForwardDone(step=step, tokens=tokens, seconds=seconds):
            name = f"{step}" if tokens == 1 else f"{step}-{step + tokens - 1}"
            shown = _slice(f"decode {name}", record.t, seconds)
        case events.ForwardStopped(step=step, seconds=seconds):
            shown = _slice(f"preempted {step}", record.t, seconds)
        case events.MessageSent() | events.MessageReceived():
            number = "" if event.step is None else f" {event.step}"
            name = f"{kind} {event.message}{number}"
            # An arrow needs a slice to begin and end at, however short.
            shown = {"ph": "X", "name": name, "ts": time_us, "dur": 1}
        case events.SideReady(load=load, prefill=prefill):
            shown = _slice("prepare", record.t, load + prefill)
        case events.LinkProbed() | events.LatencyEstimated():
            for field, name in COUNTERS[kind].items():
                if field in fields:
                    value = {field: fields[field]}
                    yield {"ph": "C", "name": name, "ts": time_us, "args": value, **where}
            return
        case _:
            name = INSTANTS.get(kind, kind).format_map(fields)
            shown = {"ph": "i", "name": name, "ts": time_us, "s": "t"}
    yield {"cat": kind, **shown, **where, "args": fields}


def _slice(name: str, end_s: float, seconds: float) -> Object:
    start_us = _us(end_s - seconds)
    return {"ph": "X", "name": name, "ts": start_us, "dur": _us(end_s) - start_us}


def _us(time_s: float) -> int:
    """Return whole microseconds."""
    return round(1e6 * time_s)
