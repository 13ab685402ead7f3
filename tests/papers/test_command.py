"""`scripts/papers/run`, as a user calls it, and figures against a cloud that already runs."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dragonrt import bundled
from dragonrt.node.connections.addresses import Address
from dragonrt.service.cloud_process import cloud_process
from scripts.papers.dragon import first_token
from scripts.papers.framework import Settings, read_rows, run_experiment

Run = Callable[..., Any]


@pytest.fixture
def papers(run: Run) -> Run:
    return partial(run, script="papers")


def test_without_a_name_the_figures_are_listed(papers: Run) -> None:
    outcome = papers()
    assert outcome.code == 0
    lines = outcome.output.splitlines()
    assert any(line.startswith("pipeline ") and "Fig. 9" in line for line in lines)
    assert any("latency, ttft, pipeline" in line for line in lines)


@pytest.mark.slow
def test_a_figure_writes_its_files_and_draws_them_again(papers: Run, tmp_path: Path) -> None:
    outcome = papers("pipeline", "--quick", "--seed=3", "--model=dragon-small", "--results=here")
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


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("nothing",), "'nothing'"),
        (("wire", "--virtual"), "--virtual"),
        (("wire", "--replot"), "wire.csv"),
        (("gamma", "--model", "a", "--model", "b"), "gamma"),
        (("wire", "--cloud", "host:1"), "--cloud"),
        (("latency", "--virtual", "--cloud", "host:1"), "--real"),
        (("latency", "--real", "--cloud", "host"), "'host'"),
        (("perplexity", "--corpus", "a.txt", "--corpus", "b.txt"), "--corpus"),
        (("sqs", "--model", "dragon-small", "--corpus", "no.json"), "no.json"),
    ],
)
def test_mistakes_are_one_line(papers: Run, arguments: tuple[str, ...], named: str) -> None:
    assert named in papers(*arguments).line


@pytest.mark.slow
def test_the_first_token_over_a_network_has_its_round_trip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(first_token, "DOCUMENTS", (2,))
    options = ("--documents", str(bundled.documents("cloud")), "--link", "30ms")
    with cloud_process(*options) as process:
        cloud = Address("127.0.0.1", process.wait_ready())
        settings = Settings(True, True, 1, 0, tmp_path, cloud=cloud)
        where = run_experiment(first_token, settings, lambda *now: None, by_model=True)
    left_out = capsys.readouterr().err
    assert all(name in left_out for name in ("CRCG/cloud", "DRCG/Text", "DRCG/KV"))
    rows = read_rows(where.rows)
    assert {row["method"] for row in rows} == {"CRCG/device", "DRAGON"}
    (measured_ms,) = {row["round_trip_ms"] for row in rows}
    assert measured_ms >= 60
    assert all(row["first_ms"] > 60 for row in rows if row["method"] == "DRAGON")
    assert where.pictured().stat().st_size > 10_000
