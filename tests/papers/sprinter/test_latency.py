"""`sprinter-latency`: exact methods are exact, nothing beats physics, and origins are known."""

from pathlib import Path

import pytest

from dragonrt.traces.events import Cause, TokenDecided
from scripts.papers.framework import Settings
from scripts.papers.intervals import grouped
from scripts.papers.sprinter import latency as sprinter_latency
from scripts.papers.sprinter.latency import (
    CONFIRMED,
    OWN,
    PASSED,
    REPLACED,
    TARGET_ALONE,
    origin,
    run,
)


@pytest.mark.slow
def test_real_models_on_the_virtual_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sprinter_latency, "TEMPERATURES", (0.0,))
    monkeypatch.setattr(sprinter_latency, "ROUND_TRIPS_MS", (100,))
    monkeypatch.setattr(sprinter_latency, "TOKENS", 10)
    settings = Settings(quick=True, real=False, repeats=1, seed=0, results=tmp_path)
    texts = grouped(run(settings, lambda done, total: None), "kind", "text", "pair")
    assert {kind for kind, _, _ in texts} == {"answers", "prose"}
    for rows in texts.values():
        own = next(row for row in rows if row["method"] == TARGET_ALONE)
        for row in rows:
            sprinter = row["method"].startswith("SPRINTER")
            assert 1 <= row["tokens"] == len(row["said"]) <= 10
            assert (row["unverified"] > 0) == sprinter or row["unverified"] == 0
            seconds = row["ms_per_token"] * row["tokens"] / 1e3
            if not sprinter:
                assert row["rougeL"] == 1.0, "an exact method gives the target's own text"
            if row is own:
                assert seconds == pytest.approx(0.05 * (row["tokens"] - 1) + 0.1)
            elif row["method"] == "coupled, the cloud decodes":
                assert row["ms_per_token"] <= own["ms_per_token"] + 1e-9, "slower than the cloud"
            elif row["method"] != "coupled, pipelined":
                drafts = row["tokens"] - row["target_calls"] if not sprinter else 0
                floor = 0.15 * row["target_calls"] + 0.01 * (drafts - 1)  # the first is known
                assert seconds >= floor - 1e-9, "faster than the link and the models"
            if sprinter:
                assert row["target_calls"] + row["unverified"] == row["tokens"]
                first = 2 * 4.4e6 / 1e9 * 10 / row["tokens"]  # the paper counts a forward for it
                assert row["paper_gflop"] <= row["gflop"] + first


@pytest.mark.parametrize(
    ("stands", "cause", "expected"),
    [
        (True, "own", PASSED),
        (True, "target", CONFIRMED),
        (False, "target", REPLACED),
        (None, "target", OWN),
    ],
)
def test_the_origin_of_a_token(stands: bool | None, cause: Cause, expected: str) -> None:
    assert origin(TokenDecided(0, 7, stands, None, cause, 0.0, 1.0)) == expected
