"""Traces in the format of Chrome's trace viewer, which Perfetto reads as well.

A process per side (and per device in a cloud's trace), in it a thread per session for what it
decodes and decides and one for what it sends and receives, arrows along the messages, and
counters of round trip, ΔZ and acceptance. Times are microseconds. Names of fields and phases are
those of the Trace Event Format's definition: X a slice, i an instant, C a counter, M a name, s and
f the two ends of an arrow.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dragonrt.errors import DragonError
from dragonrt.experiments.timeline import Event, Flight, flights
from dragonrt.side import Side, other

INSTANTS = {
    "decide": "token {step}",
    "rollback": "roll back to {step}",
    "preempt": "preempt {step}",
    "switch": "to {to}",
    "diverge": "differ at {step}",
    "alone": "alone from {step}",
    "resume": "together from {step}",
}
COUNTERS = {
    "probe": {"rtt": "round trip (s)", "bandwidth": "bandwidth (bit/s)"},
    "estimate": {
        "difference": "ΔZ (s)",
        "device": "acceptance, device",
        "cloud": "acceptance, cloud",
    },
}
MESSAGES = 1000
"""Thread numbers of sessions' messages start here."""
SHORTEST_US = 1
"""An arrow needs a slice to begin and end at, however short."""


def write_chrome_trace(by_side: dict[Side, list[Event]], path: Path) -> None:
    """Write the events of one or two sides, as `timeline.aligned` returned them."""
    text = json.dumps({"traceEvents": list(_records(by_side)), "displayTimeUnit": "ms"})
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DragonError(f"cannot write {path}: {error.strerror}") from None


def _records(by_side: dict[Side, list[Event]]) -> Iterator[Event]:
    names: dict[tuple[Side, Any], int] = {}
    busy_us: dict[tuple[int, int], int] = {}
    for side, events in by_side.items():
        for event in events:
            name = (side, event.get("peer"))
            if name not in names:
                names[name] = len(names) + 1
                label = side if name[1] is None else f"{side}, for {name[1]}"
                yield _named("process_name", names[name], 0, label)
            process, session = names[name], event["session"]
            messages = event["event"] in ("send", "receive")
            thread = session + MESSAGES if messages else session
            if (process, thread) not in busy_us:
                busy_us[process, thread] = 0
                what = "messages" if messages else "decoding"
                label = f"session {session}: {what}" if session else f"connection: {what}"
                yield _named("thread_name", process, thread, label)
            if event["event"] == "draft":  # its distribution is no sight
                continue
            for record in _of(event, {"pid": process, "tid": thread}):
                if record["ph"] == "X" and not messages:
                    busy_us[process, thread] = _begin_after(record, busy_us[process, thread])
                yield record
    for number, flight in enumerate(flights(by_side)):
        yield from _arrow(number, flight, names)


def _named(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _begin_after(slice_: Event, busy_us: int) -> int:
    """Let the slice begin no earlier than that, and return its end.

    Times and durations in a trace are rounded one by one, and slices that overlap are no stack.
    """
    end_us: int = slice_["ts"] + slice_["dur"]
    slice_["ts"] = max(slice_["ts"], busy_us)
    slice_["dur"] = end_us - slice_["ts"]
    return end_us


def _of(event: Event, where: Event) -> Iterator[Event]:
    """One event of a trace as a slice, an instant or a counter."""
    kind, time_us = event["event"], _us(event["t"])
    args = {
        name: value
        for name, value in event.items()
        if name not in ("t", "side", "session", "event", "peer")
    }
    if kind == "decode":
        last = event["step"] + event["tokens"] - 1
        name = f"{event['step']}" if event["tokens"] == 1 else f"{event['step']}-{last}"
        slice_ = _slice(f"decode {name}", event["t"], event["seconds"])
    elif kind == "stopped":
        slice_ = _slice(f"preempted {event['step']}", event["t"], event["seconds"])
    elif kind in ("send", "receive"):
        step = f" {event['step']}" if "step" in event else ""
        name = f"{kind} {event['message']}{step}"
        slice_ = {"ph": "X", "name": name, "ts": time_us, "dur": SHORTEST_US}
    elif kind == "ready":
        slice_ = _slice("prepare", event["t"], event["load"] + event["prefill"])
    elif kind in COUNTERS:
        for field, name in COUNTERS[kind].items():
            if field in event:
                value = {field: event[field]}
                yield {"ph": "C", "name": name, "ts": time_us, "args": value, **where}
        return
    else:
        name = INSTANTS[kind].format_map(event) if kind in INSTANTS else kind
        slice_ = {"ph": "i", "name": name, "ts": time_us, "s": "t"}
    yield {"cat": kind, **slice_, **where, "args": args}


def _slice(name: str, end_s: float, seconds: float) -> Event:
    start_us = _us(end_s - seconds)
    return {"ph": "X", "name": name, "ts": start_us, "dur": _us(end_s) - start_us}


def _us(time_s: float) -> int:
    """Whole microseconds."""
    return round(1e6 * time_s)


def _arrow(number: int, flight: Flight, names: dict[tuple[Side, Any], int]) -> Iterator[Event]:
    """From a message's sending to its arrival, if both are known."""
    if flight.end_s is None:
        return
    receiver: Side = other(flight.sender)
    common = {"cat": "message", "name": flight.message, "id": number}
    begins: Event = {"ph": "s"}
    ends: Event = {"ph": "f", "bp": "e"}  # at the slice around it, not at the next one
    for phase, side, time_s in (
        (begins, flight.sender, flight.start_s),
        (ends, receiver, flight.end_s),
    ):
        process = names[(side, flight.peer if side == "cloud" else None)]
        where = {"pid": process, "tid": flight.session + MESSAGES}
        yield {**phase, **common, "ts": _us(time_s), **where}
