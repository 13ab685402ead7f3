"""Figures against a cloud that already runs: what is asked of it, and what comes out."""

from pathlib import Path

import pytest

from dragonrt import bundled
from dragonrt.node.connections.addresses import Address
from dragonrt.service.cloud_process import cloud_process
from scripts.papers.dragon import first_token
from scripts.papers.framework import Settings, read_rows, run_experiment


@pytest.mark.slow
def test_the_first_token_over_a_network_has_the_measured_round_trip(
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
