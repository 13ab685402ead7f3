"""Experiments against a cloud that already runs: what is asked of it, and what comes out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dragonrt import bundled
from dragonrt.errors import DragonError
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.node.endpoints import Address
from scripts.papers.dragon import first_token
from scripts.papers.framework import Settings
from scripts.papers.lineup import asked_of


@pytest.fixture(scope="module")
def cloud() -> Iterator[Address]:
    options = ("--documents", str(bundled.documents("cloud")), "--latency", "30ms")
    with cloud_process(*options) as process:
        yield Address("127.0.0.1", process.wait_ready())


def settings(cloud: Address, results: Path) -> Settings:
    return Settings(quick=True, real=True, repeats=1, seed=0, results=results, cloud=cloud)


def test_what_an_ordinary_cloud_does_not_do_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked_of(first_token.METHODS) == ("CRCG/device", "DRAGON")
    assert capsys.readouterr().err.startswith("baselines: CRCG/cloud, DRCG/Text, DRCG/KV are left")


@pytest.mark.slow
def test_the_first_token_over_a_network_has_the_measured_round_trip(
    cloud: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_token, "DOCUMENTS", (2,))
    rows = first_token.run(settings(cloud, tmp_path), lambda done, total: None)
    assert {row["method"] for row in rows} == {"CRCG/device", "DRAGON"}
    (measured_ms,) = {row["round_trip_ms"] for row in rows}
    assert measured_ms >= 60
    assert all(row["first_ms"] > 60 for row in rows if row["method"] == "DRAGON")
    assert list(first_token.summarise(rows)["2 documents a side"]) == ["CRCG/device", "DRAGON"]
    first_token.plot([{**row, "model": "dragon-small"} for row in rows], tmp_path / "ttft.png")
    assert (tmp_path / "ttft.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_cloud_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    nobody = Address("127.0.0.1", 1)
    with pytest.raises(DragonError, match=r"127\.0\.0\.1"):
        first_token.run(settings(nobody, tmp_path), lambda done, total: None)
