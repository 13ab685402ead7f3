"""The pictures of `dragonrt trace`, as a user calls them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dragonrt.traces.events import (
    AnswerClosed,
    AnswerOpened,
    ForwardDone,
    Record,
    TokenDecided,
    TraceStarted,
)
from dragonrt.traces.file import TraceFile
from dragonrt.traces.schema import SCHEMA

Run = Callable[..., Any]


def test_a_trace_becomes_a_picture_and_a_file_for_viewers(run: Run, tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / "trace")
    for t, session, event in (
        (1.0, 0, TraceStarted(SCHEMA, "1", "m", "here")),
        (2.0, 1, AnswerOpened("dragon", 0, {"seed": 1})),
        (2.2, 1, ForwardDone(0, 1, 0.1)),
        (2.3, 1, TokenDecided(0, 4, None, None, "own", 0.3, 1.0)),
        (2.4, 1, AnswerClosed("stop")),
    ):
        trace.write(Record(t, "device", session, event))
    trace.close()
    outcome = run("trace", "trace", "--plot", "a.png", "--chrome", "a.json")
    assert (outcome.code, outcome.output) == (0, "a.png\na.json\n")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    assert "same side" in run("trace", "trace", "trace", "--plot", "a.png").line
    assert "no answer of session 9" in run("trace", "trace", "--plot", "b", "--session", "9").line
