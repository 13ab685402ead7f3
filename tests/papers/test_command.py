"""`scripts/papers/run`, as a user calls it."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def papers(run: Run) -> Run:
    return partial(run, script="papers")


def test_without_a_name_the_experiments_are_listed(papers: Run) -> None:
    outcome = papers()
    assert outcome.code == 0
    lines = outcome.output.splitlines()
    assert any(line.startswith("pipeline ") and "Fig. 9" in line for line in lines)
    assert any(line.startswith("wire ") for line in lines)
    assert any(
        line.endswith("can be asked by latency, ttft, pipeline. The others ask") for line in lines
    )


@pytest.mark.slow
def test_an_experiment_writes_its_files_and_draws_them_again(papers: Run, tmp_path: Path) -> None:
    outcome = papers("pipeline", "--quick", "--seed", "3", "--results", "here")
    assert (outcome.code, outcome.errors) == (0, "")
    rows, record, *pictures = (tmp_path / line for line in outcome.output.splitlines())
    written = json.loads(record.read_text())
    assert (written["seed"], written["clock"], written["quick"]) == (3, "virtual", True)
    before = rows.read_bytes()
    for picture in pictures:
        picture.unlink()
    assert papers("pipeline", "--replot", "--results", "here").code == 0
    assert len(pictures) > 1
    assert all(picture.exists() for picture in pictures)
    assert rows.read_bytes() == before
    assert json.loads(record.read_text()) == written


def test_mistakes_are_one_line(papers: Run) -> None:
    assert "there is no experiment 'nothing'" in papers("nothing").line
    assert "leave --virtual out" in papers("wire", "--virtual").line
    assert "run the experiment first" in papers("wire", "--replot").line


@pytest.mark.parametrize(
    "cloud", ["", "host", "host:", ":7070", "host:0", "host:65536", "::1:7070"]
)
def test_a_cloud_is_a_host_and_a_port(papers: Run, cloud: str) -> None:
    outcome = papers("latency", "--real", "--cloud", cloud)
    expected = f"--cloud takes HOST:PORT, such as 10.0.0.2:7070, not {cloud!r}"
    assert outcome.line == expected
