"""`sprinter-latency`: exact methods are exact, nothing beats physics, and the table is right."""

from pathlib import Path

import pytest

from scripts.papers.framework import Settings
from scripts.papers.intervals import Row
from scripts.papers.sprinter import latency as sprinter_latency
from scripts.papers.sprinter.latency import (
    TARGET_ALONE,
    run,
)


def is_target_alone(row: Row, other: Row) -> bool:
    same = all(row[name] == other[name] for name in ("kind", "text", "pair"))
    return same and row["method"] == TARGET_ALONE


@pytest.mark.slow
def test_real_models_on_the_virtual_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sprinter_latency, "TEMPERATURES", (0.0,))
    monkeypatch.setattr(sprinter_latency, "ROUND_TRIPS_MS", (100,))
    monkeypatch.setattr(sprinter_latency, "TOKENS", 10)
    settings = Settings(quick=True, real=False, repeats=1, seed=0, results=tmp_path)
    rows = run(settings, lambda done, total: None)
    assert {row["kind"] for row in rows} == {"answers", "prose"}
    for row in rows:
        sprinter = row["method"].startswith("SPRINTER")
        assert 1 <= row["tokens"] <= 10
        assert (row["unverified"] > 0) == sprinter or row["unverified"] == 0
        if not sprinter:
            assert row["rougeL"] == 1.0, "an exact method gives the target's own text"
        seconds = row["ms_per_token"] * row["tokens"] / 1e3
        if row["method"] == TARGET_ALONE:
            assert seconds == pytest.approx(0.05 * (row["tokens"] - 1) + 0.1)
        elif row["method"] == "coupled, the cloud decodes":
            own = next(each for each in rows if is_target_alone(each, row))
            assert row["ms_per_token"] <= own["ms_per_token"] + 1e-9, "slower than the cloud alone"
        elif row["method"] != "coupled, pipelined":
            drafts = row["tokens"] - row["target_calls"] if not sprinter else 0
            floor = 0.15 * row["target_calls"] + 0.01 * (drafts - 1)  # the first needs no forward
            assert seconds >= floor - 1e-9, "faster than the link and the models"
        if sprinter:
            assert row["target_calls"] + row["unverified"] == row["tokens"]
            first = 2 * 4.4e6 / 1e9 * 10 / row["tokens"]  # the paper counts a forward for it
            assert row["paper_gflop"] <= row["gflop"] + first
