"""Traces in the format of Chrome's trace viewer, which Perfetto reads as well.

A process per side (and per device in a cloud's trace), in it a thread per session for what it
decodes and decides and one for what it sends and receives, arrows along the messages, and
counters of round trip, ΔZ and acceptance. Times are microseconds. Names of fields and phases are
those of the Trace Event Format's definition: X a slice, i an instant, C a counter, M a name, s and
f the two ends of an arrow.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dragonrt.errors import DragonError
from dragonrt.side import Side
from dragonrt.traces.events import (
    AggregatorSwitched,
    Drafted,
    ForwardDone,
    ForwardPreempted,
    ForwardStopped,
    LatencyEstimated,
    LinkProbed,
    MessageReceived,
    MessageSent,
    Record,
    Rejoined,
    RolledBack,
    SideReady,
    TextsDiverged,
    TokenDecided,
    WentAlone,
)
from dragonrt.traces.schema import own_fields
from dragonrt.traces.timeline import Flight, flights
from retrieval.files import create

Object = dict[str, Any]
"""One event of the format."""

INSTANTS = {
    TokenDecided.KIND: "token {step}",
    RolledBack.KIND: "roll back to {step}",
    ForwardPreempted.KIND: "preempt {step}",
    AggregatorSwitched.KIND: "to {to}",
    TextsDiverged.KIND: "differ at {step}",
    WentAlone.KIND: "alone from {step}",
    Rejoined.KIND: "together from {step}",
}
COUNTERS = {
    LinkProbed.KIND: {"rtt": "round trip (s)", "bandwidth": "bandwidth (bit/s)"},
    LatencyEstimated.KIND: {
        "difference": "ΔZ (s)",
        "device": "acceptance, device",
        "cloud": "acceptance, cloud",
        "device_s": "a draft, device (s)",
        "cloud_s": "a draft, cloud (s)",
    },
}
MESSAGES = 1000
"""Thread numbers of sessions' messages start here."""
SHORTEST_US = 1
"""An arrow needs a slice to begin and end at, however short."""


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
    for side, records in by_side.items():
        for record in records:
            name = (side, record.peer)
            if name not in processes:
                processes[name] = len(processes) + 1
                label = f"{side}, for {record.peer}" if record.peer else side
                yield _named("process_name", processes[name], 0, label)
            process, session = processes[name], record.session
            messages = isinstance(record.event, MessageSent | MessageReceived)
            thread = session + MESSAGES if messages else session
            if (process, thread) not in busy_us:
                busy_us[process, thread] = 0
                what = "messages" if messages else "decoding"
                label = f"session {session}: {what}" if session else f"connection: {what}"
                yield _named("thread_name", process, thread, label)
            if isinstance(record.event, Drafted):  # its distribution is no sight
                continue
            for found in _of(record, {"pid": process, "tid": thread}):
                if found["ph"] == "X" and not messages:
                    busy_us[process, thread] = _begin_after(found, busy_us[process, thread])
                yield found
    for number, flight in enumerate(flights(by_side)):
        yield from _arrow(number, flight, processes)


def _named(kind: str, process: int, thread: int, name: str) -> Object:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _begin_after(slice_: Object, busy_us: int) -> int:
    """Let the slice begin no earlier than that, and return its end.

    Times and durations in a trace are rounded one by one, and slices that overlap are no stack.
    """
    end_us: int = slice_["ts"] + slice_["dur"]
    slice_["ts"] = max(slice_["ts"], busy_us)
    slice_["dur"] = end_us - slice_["ts"]
    return end_us


def _of(record: Record, where: Object) -> Iterator[Object]:
    """One record as a slice, an instant or a counter."""
    event, time_us = record.event, _us(record.t)
    kind, fields = event.KIND, own_fields(event)
    match event:
        case ForwardDone(step=step, tokens=tokens, seconds=seconds):
            name = f"{step}" if tokens == 1 else f"{step}-{step + tokens - 1}"
            shown = _slice(f"decode {name}", record.t, seconds)
        case ForwardStopped(step=step, seconds=seconds):
            shown = _slice(f"preempted {step}", record.t, seconds)
        case MessageSent() | MessageReceived():
            number = "" if event.step is None else f" {event.step}"
            name = f"{kind} {event.message}{number}"
            shown = {"ph": "X", "name": name, "ts": time_us, "dur": SHORTEST_US}
        case SideReady(load=load, prefill=prefill):
            shown = _slice("prepare", record.t, load + prefill)
        case LinkProbed() | LatencyEstimated():
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
    """Whole microseconds."""
    return round(1e6 * time_s)


def _arrow(
    number: int, flight: Flight, processes: Mapping[tuple[Side, str], int]
) -> Iterator[Object]:
    """From a message's sending to its arrival, if both are known."""
    if flight.arrived is None:
        return
    common = {"cat": "message", "name": flight.message, "id": number}
    begins: Object = {"ph": "s"}
    ends: Object = {"ph": "f", "bp": "e"}  # at the slice around it, not at the next one
    for phase, record in ((begins, flight.sent), (ends, flight.arrived)):
        process = processes[record.side, record.peer]
        where = {"pid": process, "tid": record.session + MESSAGES}
        yield {**phase, **common, "ts": _us(record.t), **where}
