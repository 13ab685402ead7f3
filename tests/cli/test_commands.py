"""What the commands print: help, version, traces; and that help loads nothing heavy."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragonrt import __version__
from dragonrt.cli.options import AnswerOptions
from dragonrt.runtime.plan import Plan
from dragonrt.sampling.samplers import Sampler

Run = Callable[..., Any]

COMMANDS = ("demo", "cloud", "device", "index", "profile", "trace", "simulate", "bench", "train")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_lists_the_commands(run: Run, arguments: tuple[str, ...]) -> None:
    outcome = run(*arguments)
    assert (outcome.code, outcome.errors) == (0, "")
    assert all(f" {command} " in outcome.output for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_fits_a_hundred_columns(run: Run, command: str) -> None:
    outcome = run(command, "--help")
    assert outcome.code == 0
    assert f"Usage: dragonrt {command}" in outcome.output
    assert max(len(line) for line in outcome.output.splitlines()) <= 100


def test_the_version_is_one_line(run: Run) -> None:
    assert run("--version").output == f"dragonrt {__version__}\n"


def test_help_loads_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "numpy", "prompt_toolkit", "retrieval")
    program = (
        "import sys\nfrom dragonrt.cli import main\nsys.argv = ['dragonrt', 'device', '--help']\n"
        f"try: main()\nfinally: print([m for m in {heavy} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


def test_the_options_defaults_are_the_plans() -> None:
    assert AnswerOptions().plan() == Plan(seed=0, sampler=Sampler(temperature=0.0))


def write_trace(path: Path, side: str, model: str) -> None:
    events: list[dict[str, Any]] = [
        {"session": 0, "event": "start", "version": "1", "model": model},
        {"session": 1, "event": "open", "accepted": 0},
        {"session": 1, "event": "decide", "cause": "own", "waited": 0.1, "device": True},
        {"session": 1, "event": "close", "finish": "stop"},
    ]
    events += events[1:]
    lines = ({"t": float(t), "side": side, **event} for t, event in enumerate(events))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_trace_prints_both_sides_beside_each_other(run: Run, tmp_path: Path) -> None:
    write_trace(tmp_path / "ours", "device", "a-model")
    write_trace(tmp_path / "theirs", "cloud", "b-model")
    lines = run("trace", "ours", "theirs").output.splitlines()
    heading = next(line for line in lines if "a-model" in line)
    assert heading.split() == ["device", "(a-model)", "cloud", "(b-model)"]
    assert [line.split()[1:] for line in lines if line.startswith("  tokens")] == [["2", "2"]]
    assert sum("answers, as the" in line for line in lines) == 2
    assert max(map(len, lines)) <= 100


def test_trace_prints_json_for_programs(run: Run, tmp_path: Path) -> None:
    write_trace(tmp_path / "ours", "device", "a-model")
    (line,) = run("trace", "ours", "--json").output.splitlines()
    report = json.loads(line)
    assert (report["side"], len(report["answers"]), report["total"]["tokens"]) == ("device", 2, 2)


def test_a_trace_that_is_none_is_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Dear diary,\n")
    assert run("trace", "text").line == "text line 1 is not JSON: is this a trace?"
    assert (
        run("trace", "missing").line == "cannot read the trace missing: No such file or directory"
    )
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00\n")
    assert "line 1" in run("trace", "bytes").line


@pytest.mark.slow
def test_profile_measures_and_saves(run: Run, tmp_path: Path) -> None:
    outcome = run("profile", "--model", "dragon-draft", "--rows", "1", "--runs", "1")
    assert outcome.code == 0
    assert outcome.output.count("ms per token at length") == 3
    (saved,) = tmp_path.glob("data/dragonrt/hosts/*dragon-draft.json")
    assert json.loads(saved.read_text())["runs"] == 1
    assert str(saved) in outcome.errors
