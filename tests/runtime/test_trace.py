"""Writing a trace: whole lines, on the given clock, up to date after every answer."""

import json
from pathlib import Path

import pytest

from dragonrt import __version__
from dragonrt.errors import DragonError
from dragonrt.runtime.trace import NoTrace, TraceFile


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_events_are_lines_on_the_given_clock(tmp_path: Path) -> None:
    times = iter((1.0, 2.0000004, 3.5))
    with (tmp_path / "trace").open("w") as file:
        trace = TraceFile(file, lambda: next(times), side="cloud")
        trace.event(1, "decide", step=0, token=7)
        trace.of("10.0.0.2:5000").event(1, "rollback", step=0, dropped=2)
        trace.event(0, "probe", rtt=0.1)
    first, second, third = lines(tmp_path / "trace")
    assert first == {
        "t": 1.0,
        "side": "cloud",
        "session": 1,
        "event": "decide",
        "step": 0,
        "token": 7,
    }
    assert (second["t"], second["peer"], second["dropped"]) == (2.0, "10.0.0.2:5000", 2)
    assert "peer" not in third


async def test_a_killed_process_loses_at_most_one_answer(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    trace = TraceFile.open(path, "device", "a-model")
    start = lines(path)[0]
    assert start.pop("clock")
    assert start | {"t": 0} == {
        "t": 0,
        "side": "device",
        "session": 0,
        "event": "start",
        "version": __version__,
        "model": "a-model",
    }
    trace.event(1, "decide", step=0)
    assert len(lines(path)) == 1, "nothing is written in the middle of an answer"
    trace.event(1, "close", finish="stop")
    assert [line["event"] for line in lines(path)] == ["start", "decide", "close"]
    trace.close()


async def test_a_trace_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DragonError, match=r"cannot write the trace .*missing.*: No such file"):
        TraceFile.open(tmp_path / "missing" / "trace", "device", "a-model")


def test_no_trace_takes_everything() -> None:
    trace = NoTrace()
    trace.event(1, "decide", step=0)
    assert trace.of("anyone") is trace


async def test_traces_of_one_host_have_one_clock(tmp_path: Path) -> None:
    traces = [TraceFile.open(tmp_path / side, side, "a-model") for side in ("device", "cloud")]
    for trace in traces:
        trace.close()
    clocks = {lines(tmp_path / side)[0]["clock"] for side in ("device", "cloud")}
    assert len(clocks) == 1
