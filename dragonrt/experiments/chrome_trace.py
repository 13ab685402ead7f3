"""Traces in the format of Chrome's trace viewer, which Perfetto reads as well.

A process per side (and per device in a cloud's trace), in it a thread per session for what it
decodes and decides and one for what it sends and receives, arrows along the messages, and
counters of round trip, ΔZ and acceptance. Times are microseconds.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dragonrt.errors import DragonError
from dragonrt.experiments.timeline import Event, Flight, flights
from dragonrt.sampling.noise import Side

INSTANTS = {
    "decide": "token {step}",
    "rollback": "roll back to {step}",
    "preempt": "preempt {step}",
    "switch": "to {to}",
    "diverge": "differ at {step}",
    "alone": "alone from {step}",
    "resume": "together from {step}",
}
COUNTERS = {"probe": ("rtt", "bandwidth"), "estimate": ("difference", "device", "cloud")}
MESSAGES = 1000
"""Thread numbers of sessions' messages start here."""
SHORTEST_US = 1.0
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
    threads: set[tuple[int, int]] = set()
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
            if (process, thread) not in threads:
                threads.add((process, thread))
                what = "messages" if messages else "decoding"
                label = f"session {session}: {what}" if session else f"connection: {what}"
                yield _named("thread_name", process, thread, label)
            if event["event"] != "draft":  # its distribution is no sight
                yield from _of(event, {"pid": process, "tid": thread})
    for number, flight in enumerate(flights(by_side)):
        yield from _arrow(number, flight, names)


def _named(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _of(event: Event, where: Event) -> Iterator[Event]:
    """One event of a trace as a slice, an instant or a counter."""
    kind, time_us = event["event"], 1e6 * event["t"]
    args = {
        name: value
        for name, value in event.items()
        if name not in ("t", "side", "session", "event", "peer")
    }
    if kind == "decode":
        last = event["step"] + event["tokens"] - 1
        name = f"{event['step']}" if event["tokens"] == 1 else f"{event['step']}-{last}"
        start_us = time_us - 1e6 * event["seconds"]
        slice_ = {"ph": "X", "name": f"decode {name}", "ts": start_us, "dur": time_us - start_us}
    elif kind == "stopped":
        start_us = time_us - 1e6 * event["seconds"]
        name = f"preempted {event['step']}"
        slice_ = {"ph": "X", "name": name, "ts": start_us, "dur": time_us - start_us}
    elif kind in ("send", "receive"):
        step = f" {event['step']}" if "step" in event else ""
        name = f"{kind} {event['message']}{step}"
        slice_ = {"ph": "X", "name": name, "ts": time_us, "dur": SHORTEST_US}
    elif kind == "ready":
        start_us = time_us - 1e6 * (event["load"] + event["prefill"])
        slice_ = {"ph": "X", "name": "prepare", "ts": start_us, "dur": time_us - start_us}
    elif kind in COUNTERS:
        for name in COUNTERS[kind]:
            if name in event:
                yield {"ph": "C", "name": name, "ts": time_us, "args": {name: event[name]}, **where}
        return
    else:
        name = INSTANTS[kind].format_map(event) if kind in INSTANTS else kind
        slice_ = {"ph": "i", "name": name, "ts": time_us, "s": "t"}
    yield {"cat": kind, **slice_, **where, "args": args}


def _arrow(number: int, flight: Flight, names: dict[tuple[Side, Any], int]) -> Iterator[Event]:
    """From a message's sending to its arrival, if both are known."""
    if flight.end_s is None:
        return
    receiver: Side = "cloud" if flight.sender == "device" else "device"
    common = {"cat": "message", "name": flight.message, "id": number}
    ends = (("s", flight.sender, flight.start_s), ("f", receiver, flight.end_s))
    for phase, side, time_s in ends:
        process = names[(side, flight.peer if side == "cloud" else None)]
        where = {"pid": process, "tid": flight.session + MESSAGES}
        yield {"ph": phase, **common, "ts": 1e6 * time_s, **where, "bp": "e"}
