"""What the commands print: help, version, traces; and that help loads nothing heavy."""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragonrt import __version__
from dragonrt.cli.console import output
from dragonrt.side import Side
from dragonrt.traces.events import (
    AnswerClosed,
    AnswerOpened,
    BlockJudged,
    BlockSent,
    Event,
    MessageReceived,
    Record,
    ThresholdMoved,
    TokenDecided,
    TraceStarted,
)
from dragonrt.traces.file import SCHEMA, TraceFile

Run = Callable[..., Any]

COMMANDS = (*("demo", "cloud", "device", "serve", "index", "profile", "trace"),)


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_lists_the_commands(run: Run, arguments: tuple[str, ...]) -> None:
    outcome = run(*arguments)
    assert (outcome.code, outcome.errors) == (0, "")
    assert all(f" {command} " in outcome.output for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_one_screen_of_eighty_columns(run: Run, command: str) -> None:
    outcome = run(*command.split(), "--help")
    lines = outcome.output.splitlines()
    assert outcome.code == 0
    assert lines[0].startswith(f"Usage: dragonrt {command}")
    assert max(map(len, lines)) <= 80
    assert len(lines) < 40
    assert "…  " not in outcome.output


@pytest.mark.parametrize("command", COMMANDS)
def test_all_help_has_every_option_and_cuts_nothing_off(run: Run, command: str) -> None:
    brief, whole = (run(*command.split(), flag).output for flag in ("--help", "--help-all"))
    assert max(map(len, whole.splitlines())) <= 80
    assert set(brief.splitlines()) <= set(whole.splitlines()) | {""}
    if command == "device":
        words = whole.split()
        for name in ("--documents-per-side", "--pipelined", "--budget"):
            assert name in words
            assert name not in brief.split()
        assert "--run-ahead" not in words


def test_the_version_is_one_line(run: Run) -> None:
    assert run("--version").output == f"dragonrt {__version__}\n"


def test_help_loads_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "prompt_toolkit", "retrieval.index", "matplotlib")
    program = (
        "import sys\nfrom dragonrt.cli import main\nsys.argv = ['dragonrt', 'device', '--help']\n"
        f"try: main()\nfinally: print([m for m in {heavy} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


DECIDED = TokenDecided(0, 5, True, None, "own", 0.1, 1.0)
ANSWER = (AnswerOpened("dragon", 0, {"seed": 1}), DECIDED, AnswerClosed("stop"))


def write_trace(
    path: Path, side: Side, model: str, *events: Event, peers: tuple[str, ...] = ("",)
) -> None:
    """A trace of one answer for each peer, an event a second."""
    trace = TraceFile(path)
    trace.write(Record(0.0, side, 0, TraceStarted(SCHEMA, "1", model, "here")))
    times = itertools.count(1.0)
    for peer in peers:
        for event in events:
            trace.write(Record(next(times), side, 1, event, peer))
    trace.close()


def test_trace_prints_both_sides_beside_each_other(run: Run, tmp_path: Path) -> None:
    write_trace(tmp_path / "ours", "device", "a-model", *ANSWER, *ANSWER)
    write_trace(tmp_path / "theirs", "cloud", "b-model", *ANSWER, *ANSWER)
    lines = run("trace", "ours", "theirs").output.splitlines()
    heading = next(line for line in lines if "a-model" in line)
    assert heading.split() == ["device", "(a-model)", "cloud", "(b-model)"]
    assert [line.split()[1:] for line in lines if line.startswith("  tokens ")] == [["2", "2"]]
    assert sum("answers, as the" in line for line in lines) == 2
    assert max(map(len, lines)) <= 100


def test_trace_prints_json_for_programs(run: Run, tmp_path: Path) -> None:
    write_trace(tmp_path / "ours", "device", "a-model", *ANSWER, *ANSWER)
    (line,) = run("trace", "ours", "--json").output.splitlines()
    report = json.loads(line)
    assert (report["side"], len(report["answers"]), report["total"]["tokens"]) == ("device", 2, 2)


def test_a_trace_that_is_none_is_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Dear diary,\n")
    assert run("trace", "text").line == "text line 1 is not JSON: name a trace"
    assert (
        run("trace", "missing").line == "cannot read the trace missing: No such file or directory"
    )
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00\n")
    assert "line 1" in run("trace", "bytes").line
    (tmp_path / "old").write_text('{"t":1,"side":"device","session":0,"event":"start"}\n')
    assert run("trace", "old").line.startswith("old is a trace of schema 1, and this version reads")


def test_a_trace_with_blocks_is_summed_up_beside_one_without(run: Run, tmp_path: Path) -> None:
    rates = {"learning_rate": 0.5, "target": 0.1, "horizon": None}
    opened = AnswerOpened("speculative", 0, {"seed": 1, **rates})
    decided = TokenDecided(0, 5, None, None, "target", 0.1, 0.0)
    blocks = (BlockSent(1, 0, 4, 90, 0.1), BlockJudged(1, 4, 1, 5, 0.1, 0.02))
    moved = ThresholdMoved(0, 0.1, 0.25)
    ours = (opened, *blocks, moved, decided, decided, AnswerClosed("length"))
    write_trace(tmp_path / "ours", "device", "m", *ours)
    write_trace(tmp_path / "theirs", "cloud", "m", opened)
    rows = {
        cells[0]: cells[1:]
        for line in run("trace", "theirs", "ours").output.splitlines()
        if len(cells := re.split(r"\s{2,}", line.strip())) == 3
    }
    expected = {
        "acceptance device": ["-", "0.5"],
        "blocks": ["0", "1"],
        "tokens per block": ["-", "4"],
        "bits per token": ["-", "45"],
        "resampling rate": ["-", "1"],
        "ms per verdict": ["-", "20"],
        "conformal average dropped": ["-", "0.25"],
        "conformal bound": ["-", "2.4"],
        "conformal beta": ["-", "0.025"],
    }
    assert rows.items() >= expected.items()


def test_many_devices_leave_numbers_their_place(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "width", 80)
    received = MessageReceived("block", 12345)
    events = (ANSWER[0], received, DECIDED, AnswerClosed("cancelled"))
    peers = ("127.0.0.1:49150", "127.0.0.1:49151")
    write_trace(tmp_path / "cloud", "cloud", "m", *events, peers=peers)
    printed = run("trace", "cloud").output
    assert "…" not in printed
    assert printed.count("cancelled") == 2
    assert "1 of #1" in printed
    assert "1 of #2" in printed


@pytest.mark.slow
def test_profile_measures_and_saves(run: Run, tmp_path: Path) -> None:
    outcome = run("profile", "--model", "dragon-draft", "--rows", "1", "--runs", "1")
    assert outcome.code == 0
    assert outcome.output.count("ms per token at length") == 3
    (saved,) = tmp_path.glob("data/dragonrt/hosts/*dragon-draft.json")
    assert json.loads(saved.read_text())["k_b"] > 0
    assert str(saved) in outcome.errors
