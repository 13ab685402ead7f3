"""`dragonrt experiment` and the pictures of `dragonrt trace`, as a user calls them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.slow
def test_listing_loads_no_models() -> None:
    program = (
        "import sys\nfrom dragonrt.experiments import figures\n"
        "print([m for m in ('torch', 'transformers', 'matplotlib') if m in sys.modules])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_a_name_the_experiments_are_listed(run: Run) -> None:
    outcome = run("experiment")
    assert outcome.code == 0
    lines = outcome.output.splitlines()
    assert any(line.startswith("pipeline ") and "Fig. 9" in line for line in lines)
    assert any(line.startswith("wire ") for line in lines)
    assert any(
        line.endswith("can be asked by latency, ttft, pipeline. The others ask") for line in lines
    )


@pytest.mark.slow
def test_an_experiment_writes_its_files_and_draws_them_again(run: Run, tmp_path: Path) -> None:
    outcome = run("experiment", "pipeline", "--quick", "--seed", "3", "--results", "here")
    assert (outcome.code, outcome.errors) == (0, "")
    rows, record, *pictures = (tmp_path / line for line in outcome.output.splitlines())
    written = json.loads(record.read_text())
    assert (written["seed"], written["clock"], written["quick"]) == (3, "virtual", True)
    before = rows.read_bytes()
    for picture in pictures:
        picture.unlink()
    assert run("experiment", "pipeline", "--replot", "--results", "here").code == 0
    assert len(pictures) > 1
    assert all(picture.exists() for picture in pictures)
    assert rows.read_bytes() == before
    assert json.loads(record.read_text()) == written


def test_mistakes_are_one_line(run: Run) -> None:
    assert "there is no experiment 'nothing'" in run("experiment", "nothing").line
    assert "leave --virtual out" in run("experiment", "wire", "--virtual").line
    assert "run the experiment first" in run("experiment", "wire", "--replot").line


@pytest.mark.parametrize(
    "cloud", ["", "host", "host:", ":7070", "host:0", "host:65536", "::1:7070"]
)
def test_a_cloud_is_a_host_and_a_port(run: Run, cloud: str) -> None:
    outcome = run("experiment", "latency", "--real", "--cloud", cloud)
    expected = f"--cloud takes HOST:PORT, such as 10.0.0.2:7070, not {cloud!r}"
    assert outcome.line == expected


def test_mistakes_about_the_cloud_are_one_line(run: Run) -> None:
    here = ("--cloud", "[::1]:7070")
    line = run("experiment", "wire", *here).line
    assert line == "wire asks no cloud: --cloud is for latency, ttft, pipeline"
    assert "pipeline --real --cloud" in run("experiment", "pipeline", *here).line
    no_key = run("experiment", "latency", "--real", *here, "--key-file", "none")
    assert "cannot read the key file none" in no_key.line


def test_a_trace_becomes_a_picture_and_a_file_for_viewers(run: Run, tmp_path: Path) -> None:
    trace = TraceFile.open(tmp_path / "trace")
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
