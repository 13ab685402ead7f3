"""Traces as files for trace viewers: slices, arrows and counters in the Trace Event Format."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dragonrt.errors import DragonError
from dragonrt.traces import events
from dragonrt.traces.chrome import write_chrome_trace
from dragonrt.traces.events import Record
from dragonrt.traces.timeline import aligned, flights

MakeTrace = Callable[..., list[Record]]


def written(traces: Sequence[Sequence[Record]], path: Path) -> list[dict[str, Any]]:
    write_chrome_trace(aligned(traces), path)
    found = json.loads(path.read_text())
    assert set(found) == {"traceEvents", "displayTimeUnit"}
    assert found["displayTimeUnit"] in ("ms", "ns")
    events: list[dict[str, Any]] = found["traceEvents"]
    return events


def test_there_are_slices_arrows_and_counters(trace: MakeTrace, tmp_path: Path) -> None:
    records = written([trace("device"), trace("cloud")], tmp_path / "trace.json")
    named = {one["pid"]: one["args"]["name"] for one in records if one["name"] == "process_name"}
    assert sorted(named.values()) == ["cloud", "cloud, for 10.0.0.2:5000", "device"]
    decoded = [one for one in records if one["name"].startswith("decode ")]
    assert len(decoded) == 8
    assert all(one["dur"] == pytest.approx(5e4) for one in decoded)
    (stopped, _) = (one for one in records if one["name"] == "preempted 3")
    assert stopped["dur"] == pytest.approx(3e4)
    assert {one["name"] for one in records if one["ph"] == "C"} == {
        "round trip (s)",
        "ΔZ (s)",
        "acceptance, device",
        "acceptance, cloud",
        "a draft, device (s)",
        "a draft, cloud (s)",
    }
    assert {"token 1", "roll back to 1", "preempt 3", "to cloud"} <= {
        one["name"] for one in records if one["ph"] == "i"
    }
    assert {"prepare", "send draft 0", "receive draft 2"} <= {
        one["name"] for one in records if one["ph"] == "X"
    }


def test_a_file_that_cannot_be_written_is_one_line(trace: MakeTrace, tmp_path: Path) -> None:
    with pytest.raises(DragonError):
        write_chrome_trace(aligned([trace("device")]), tmp_path / "missing" / "trace.json")


FIELDS = {
    "X": {"cat", "ts", "dur", "args"},
    "i": {"cat", "ts", "s", "args"},
    "C": {"ts", "args"},
    "M": {"args"},
    "s": {"cat", "ts", "id"},
    "f": {"cat", "ts", "id", "bp"},
}
"""What each phase of the Trace Event Format has, as used here, beside ph, name, pid and tid."""


def check_trace_event(record: dict[str, Any]) -> None:
    """The fields of one event, their types and the values that the format allows."""
    phase = record["ph"]
    assert set(record) == {"ph", "name", "pid", "tid"} | FIELDS[phase], record
    assert isinstance(record["name"], str)
    assert record["name"]
    for whole in {"pid", "tid", "ts", "dur", "id"} & set(record):
        assert type(record[whole]) is int, (whole, record)
    assert record.get("dur", 0) >= 0
    assert record.get("s", "t") in ("g", "p", "t")
    assert record.get("bp", "e") == "e"
    if phase == "M":
        assert record["name"] in ("process_name", "thread_name")
        assert list(record["args"]) == ["name"]
        assert isinstance(record["args"]["name"], str)
    if phase == "C":
        assert record["args"]
        assert all(type(value) in (int, float) for value in record["args"].values())


def check_nesting(slices: list[dict[str, Any]]) -> None:
    """Slices of one thread lie within or beside one another."""
    open_until: list[int] = []
    for one in sorted(slices, key=lambda each: (each["ts"], -each["dur"])):
        while open_until and open_until[-1] <= one["ts"]:
            open_until.pop()
        end = one["ts"] + one["dur"]
        assert not open_until or end <= open_until[-1], one
        open_until.append(end)


def workers(records: list[Record]) -> list[Record]:
    """The device's messages as those of a coordinator's session with a worker."""
    messages = events.MessageSent | events.MessageReceived
    return [
        replace(each, peer="b:2") if isinstance(each.event, messages) else each for each in records
    ]


def back_to_back(records: list[Record]) -> list[Record]:
    """Forwards without a pause between them, whose ends alone are rounded."""
    each_s = 0.0123456789
    ends = (
        Record(round(20 + n * each_s, 6), "cloud", 1, events.ForwardDone(n, 1, each_s))
        for n in range(40)
    )
    return [*records, *ends]


@pytest.mark.parametrize("case", ["both sides", "one side", "a coordinator", "back to back"])
def test_it_keeps_to_the_trace_event_format(case: str, trace: MakeTrace, tmp_path: Path) -> None:
    traces = {
        "both sides": [trace("device"), trace("cloud")],
        "one side": [trace("cloud")],
        "back to back": [back_to_back(trace("cloud"))],
        "a coordinator": [workers(trace("device")), trace("cloud")],
    }[case]
    threads: dict[tuple[int, int], list[dict[str, Any]]] = {}
    arrows: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    named = set()
    records = written(traces, tmp_path / "trace.json")
    for record in records:
        check_trace_event(record)
        thread = (record["pid"], record["tid"])
        if record["ph"] == "M":
            named.add((record["name"], *thread))
        elif record["ph"] == "X":
            threads.setdefault(thread, []).append(record)
        elif record["ph"] in "sf":
            arrows.setdefault((record["cat"], record["name"], record["id"]), []).append(record)
    for pid, tid in {(one["pid"], one["tid"]) for one in records}:
        assert ("process_name", pid, 0) in named
        assert ("thread_name", pid, tid) in named or tid == 0
    for slices in threads.values():
        check_nesting(slices)
    begun = {(*thread, one["ts"]) for thread, slices in threads.items() for one in slices}
    for begins, ends in arrows.values():
        assert (begins["ph"], ends["ph"]) == ("s", "f")
        assert begins["ts"] <= ends["ts"]
        assert {(one["pid"], one["tid"], one["ts"]) for one in (begins, ends)} <= begun
    known = [one for one in flights(aligned(traces)) if one.arrived is not None]
    assert len(arrows) == len(known) == 6 * (len(traces) - 1)
