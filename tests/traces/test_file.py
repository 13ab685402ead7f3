"""Traces as files: every event comes back as it was, up to date after each answer, or one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields

from dragonrt.errors import DragonError
from dragonrt.traces import events
from dragonrt.traces.events import Event, Record
from dragonrt.traces.file import Recorder, TraceFile, from_object, read_trace, start, to_object
from tests.strategies import of_kind

SETTINGS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


def instances(kind: type[Event]) -> st.SearchStrategy[Event]:
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(
        kind, **{each.name: of_kind(hints[each.name], SETTINGS) for each in fields(kind)}
    )


@given(
    st.one_of(*(instances(kind) for kind in events.EVENTS)),
    st.floats(allow_nan=False),
    st.sampled_from(["device", "cloud"]),
    st.integers(0),
    st.text(),
)
def test_every_event_comes_back_as_it_was(
    event: Event, t: float, side: Any, session: int, peer: str
) -> None:
    record = Record(t, side, session, event, peer)
    line = json.dumps(to_object(record))
    assert from_object(json.loads(line)) == record
    assert type(from_object(json.loads(line)).event) is type(event)


def lines_of(records: list[Record]) -> list[str]:
    return [json.dumps(to_object(record)) + "\n" for record in records]


STARTED = Record(0.0, "device", 0, start("a-model"))
RECORDS = [
    STARTED,
    Record(1.5, "device", 1, events.RolledBack(3, 2)),
    Record(2.0, "device", 0, events.LinkProbed(rtt=0.1)),
    Record(2.5, "cloud", 1, events.AnswerClosed("stop"), "10.0.0.2:5000"),
]


def test_records_are_made_on_the_given_clock_for_every_sink(tmp_path: Path) -> None:
    times = iter((1.0, 2.0000004, 3.5))
    seen: list[Record] = []
    trace = TraceFile(tmp_path / "trace")
    recorder = Recorder(lambda: next(times), "cloud", (trace.write,))
    recorder.event(0, start("a-model"))
    recorder.of("10.0.0.2:5000").also(seen.append).event(1, events.RolledBack(0, 2))
    recorder.event(0, events.LinkProbed(rtt=0.1))
    trace.close()
    read = read_trace(tmp_path / "trace")
    assert [(one.t, one.side, one.session, one.peer) for one in read] == [
        (1.0, "cloud", 0, ""),
        (2.0, "cloud", 1, "10.0.0.2:5000"),
        (3.5, "cloud", 0, ""),
    ]
    assert seen == read[1:2]


def test_a_killed_process_loses_at_most_one_answer(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    trace = TraceFile(path)
    trace.write(STARTED)
    trace.write(RECORDS[1])
    assert read_trace(path) == [STARTED], "nothing is written in the middle of an answer"
    trace.write(RECORDS[3])
    assert read_trace(path) == [STARTED, RECORDS[1], RECORDS[3]]
    trace.close()


def test_files_that_cannot_be_opened_are_one_line(tmp_path: Path) -> None:
    for touch in (TraceFile, read_trace):
        with pytest.raises(DragonError):
            touch(tmp_path / "missing" / "trace")


Read = Callable[[list[str]], list[Record]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read these lines as a file."""

    def read(lines: list[str]) -> list[Record]:
        (tmp_path / "some.jsonl").write_text("".join(lines))
        return read_trace(tmp_path / "some.jsonl")

    return read


@pytest.mark.parametrize("kept", [1, 10, 30])
def test_a_last_line_that_was_cut_off_is_left_out(kept: int, read: Read) -> None:
    lines = lines_of(RECORDS)
    assert read([*lines[:-1], lines[-1][:kept]]) == RECORDS[:-1]
    assert read([*lines[:-1], lines[-1].rstrip("\n")]) == RECORDS


def test_a_damaged_last_line_that_has_its_end_is_an_error(read: Read) -> None:
    with pytest.raises(DragonError):
        read([*lines_of(RECORDS)[:-1], "{\n"])


COMMON = '{"t":1,"side":"device","session":1'


ROUND = '"event":"round","round":1,"step":1,"decided":1'


@pytest.mark.parametrize(
    "line",
    [
        *("{", "[1]", COMMON + "}"),
        '{"t":"x","side":"device","session":1,"event":"alone","step":1}',
        '{"t":1,"side":"moon","session":1,"event":"alone","step":1}',
        '{"t":1,"side":"device","session":true,"event":"alone","step":1}',
        COMMON + ',"event":"novelty"}',
        COMMON + ',"event":["decide"]}',
        COMMON + ',"event":"decide"}',
        COMMON + ',"event":"alone","step":1,"why":2}',
        COMMON + ',"event":"rollback","step":1,"dropped":true}',
        COMMON + ',"event":"rollback","step":1,"dropped":1.5}',
        COMMON + f',{ROUND},"weights":{{"a":"b"}},"missing":[]}}',
        COMMON + f',{ROUND},"weights":{{}},"missing":[1]}}',
        COMMON + ',"event":"notice","kind":"novelty","text":"x"}',
        COMMON + ',"event":"notice","kind":"alone","text":"x","reason":7}',
        COMMON + ',"event":"draft","step":1,"payload":"AA"}',
        COMMON + ',"event":"switch","step":1,"to":"moon","difference":1}',
    ],
)
def test_a_broken_line_is_named(line: str, read: Read) -> None:
    lines = lines_of(RECORDS)
    with pytest.raises(DragonError, match=r"some\.jsonl line 3 "):
        read([*lines[:2], line + "\n", *lines[2:]])


@pytest.mark.parametrize("lines", [[], ["{"], ["# a text\n"], ["1\n"], lines_of(RECORDS)[1:]])
def test_what_is_no_trace_is_rejected(lines: list[str], read: Read) -> None:
    with pytest.raises(DragonError, match=r"some\.jsonl "):
        read(lines)


def test_traces_of_other_schemas_are_rejected(read: Read) -> None:
    old = '{"t":0,"side":"device","session":0,"event":"start","version":"0.1.0","model":"m"}\n'
    newer = Record(0.0, "device", 0, events.TraceStarted(99, "9.0", "m", "c"))
    for line, version in ((old, "0.1.0"), (lines_of([newer])[0], "9.0")):
        with pytest.raises(DragonError, match=version):
            read([line])
