"""`sprinter-latency`: exact methods are exact, nothing beats physics, and the table is right."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.papers.framework import Settings
from scripts.papers.intervals import Row
from scripts.papers.sprinter import latency as sprinter_latency
from scripts.papers.sprinter.latency import (
    BASELINE,
    PAIRS,
    TARGET_ALONE,
    pairs,
    plot,
    run,
    summarise,
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


def test_both_bundled_pairs_are_measured_unless_a_pair_or_a_quick_run_is_asked_for() -> None:
    settings = Settings(quick=False, real=False, repeats=1, seed=0, results=Path())
    assert pairs(settings) == PAIRS
    assert pairs(replace(settings, quick=True)) == PAIRS[:1]
    assert pairs(replace(settings, target="dragon-opt")) == PAIRS[1:]


def row_of(pair: str, rtt_ms: int, method: str, **values: Any) -> Row:
    common = {
        "pair": pair,
        "kind": "prose",
        "text": 0,
        "temperature": 1.0,
        "rtt_ms": rtt_ms,
        "method": method,
    }
    numbers = {
        "tokens": 20,
        "ms_per_token": 80.0,
        "target_calls": 10,
        "drafts_standing": 10,
        "unverified": 0,
        "draft_gflop": 0.1,
        "target_gflop": 0.3,
        "verifier_gflop": 0.1,
        "gflop": 0.5,
        "paper_gflop": 0.4,
        "rouge1": 0.5,
        "rouge2": 0.3,
        "rougeL": 0.4,
    }
    return {**common, **numbers, **values}


def test_summary_and_picture_come_from_the_rows(tmp_path: Path) -> None:
    rows = [
        row
        for pair in ("small, large", "small, other")
        for rtt_ms in (0, 100)
        for row in (
            row_of(pair, rtt_ms, TARGET_ALONE, ms_per_token=30.0),
            row_of(pair, rtt_ms, BASELINE),
            row_of(pair, rtt_ms, BASELINE, tokens=10, target_calls=2, ms_per_token=40.0),
            row_of(pair, rtt_ms, "SPRINTER", target_calls=0, unverified=20, ms_per_token=20.0),
        )
    ]
    table = summarise(rows)["small, other"]["prose, temperature 1, round trip 100 ms"]
    assert table[BASELINE]["tokens_per_call"] == 30 / 12
    assert table[BASELINE]["drafts_standing_per_call"] == pytest.approx(20 / 12, abs=1e-3)
    assert table[BASELINE]["speedup"] == 1.0
    assert table["SPRINTER"]["speedup"] == 3.0
    assert table["SPRINTER"]["over_target_alone"] == 1.5
    assert table["SPRINTER"]["tokens_per_call"] is None
    assert table["SPRINTER"]["unverified"] == 1.0
    plot(rows, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
