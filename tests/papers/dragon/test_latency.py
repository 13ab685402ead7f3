"""The latency experiment: what its rows say of the methods, and its real models in virtual time."""

from pathlib import Path
from typing import Any

import pytest

from dragonrt.testing import loop
from scripts.papers.dragon import latency as latency_figure
from scripts.papers.dragon.baselines.device import BASELINES, Asked
from scripts.papers.framework import Settings
from scripts.papers.intervals import Row
from scripts.papers.lineup import ALL, METHODS, OVER_A_NETWORK, PacedModels

QUESTION = "What do you need to make lemon cake?"


def row(method: str, round_trip_ms: int, total_ms: float, accepted: float | None = None) -> Row:
    return {
        "model": "m",
        "decode_ms": 50.0,
        "round_trip_ms": round_trip_ms,
        "question": 0,
        "method": method,
        "temperature": 0.8,
        "seed": 1,
        "ms_per_token": total_ms / latency_figure.TOKENS,
        "first_ms": 100.0,
        "total_ms": total_ms,
        "wire_bytes": 10,
        "accepted_device": accepted,
        "accepted_cloud": None if accepted is None else accepted / 2,
    }


ROWS = [
    row(name, ms, total, 0.8 if name in METHODS else None)
    for ms in (0, 300)
    for name in ALL
    for total in ({"DRDG/TW": 7000.0, "DRAGON": 2800.0}.get(name, 1400.0),)
]


def test_summary_and_picture_say_what_is_saved_at_the_longest_round_trip(tmp_path: Path) -> None:
    at = latency_figure.summarise(ROWS)["temperature 0.8"]["at 300 ms"]
    assert at["DRAGON below DRDG/TW, %"] == 60.0
    assert at["DRAGON below DRDG/SW, %"] == -100.0
    assert at["leaderless over DRAGON"] == 0.5
    assert at["DRAGON"]["mean ms between tokens"] == pytest.approx(2700 / 19, abs=0.01)
    assert at["DRAGON"]["mean acceptance, cloud"] == 0.4
    assert at["DRAGON"]["predicted ms between tokens"] == pytest.approx(50 + 0.2 * 300)
    assert at["coupled, leaderless"]["predicted ms between tokens"] == pytest.approx(50 + 0.2 * 150)
    assert at["leaderless over DRAGON, between tokens"] == {
        "mean ms between tokens": pytest.approx(1300 / 2700, abs=1e-4),
        "predicted ms between tokens": pytest.approx(80 / 110, abs=1e-4),
    }
    latency_figure.plot(ROWS, tmp_path / "latency.png")
    assert (tmp_path / "latency.png").stat().st_size > 10_000


def test_one_measured_round_trip_is_a_bar_for_each_method_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    axes = pytest.importorskip("matplotlib.axes").Axes
    bars: list[tuple[float, float]] = []
    draw = axes.barh

    def barh(self: Any, places: list[float], values: list[float], *rest: Any, **looks: Any) -> Any:
        bars.extend(zip(places, values, strict=True))
        return draw(self, places, values, *rest, **looks)

    monkeypatch.setattr(axes, "barh", barh)
    rows = [
        row(name, 101, 20.0 * number) | {"decode_ms": None}
        for number, name in enumerate(OVER_A_NETWORK, start=1)
    ]
    latency_figure.plot(rows, tmp_path / "latency.png")
    assert bars == [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0), (4, 5.0)]
    assert (tmp_path / "latency.png").stat().st_size > 10_000
    at = latency_figure.summarise(rows)["temperature 0.8"]["at 101 ms"]
    assert at["leaderless over DRAGON"] == pytest.approx(5 / 3, abs=1e-4)
    assert "DRAGON below DRDG/SW, %" not in at


@pytest.mark.slow
def test_every_method_answers_in_virtual_time_and_waits_as_it_must(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(latency_figure, "TOKENS", 6)
    monkeypatch.setattr(latency_figure, "ROUND_TRIPS_MS", (0, 300))
    monkeypatch.setattr(latency_figure, "TEMPERATURES", (0.0,))
    settings = Settings(quick=True, real=False, repeats=1, seed=0, results=tmp_path)
    seen: list[tuple[int, int]] = []
    rows = latency_figure.run(settings, lambda done, all_: seen.append((done, all_)))
    assert [one["method"] for one in rows] == [*ALL, *ALL]
    assert seen[-1] == (len(rows), len(rows))
    at = {(one["method"], one["round_trip_ms"]): one for one in rows}
    # Six drafts of 50 ms, and for each token a round trip: nothing is faster than its physics.
    assert at["DRDG/TW", 300]["total_ms"] > 6 * 300 - 60
    for name in ALL:
        floor_ms = 6 * 50 if name in BASELINES else 50
        assert at[name, 0]["total_ms"] > floor_ms - 1, name
    assert at["DRAGON", 300]["total_ms"] < 0.6 * at["DRDG/TW", 300]["total_ms"]


@pytest.mark.slow
def test_paced_real_models_give_the_oracles_text_over_any_link() -> None:
    paced = PacedModels("dragon-small", 0.05)

    async def texts(round_trip_s: float) -> list[list[int]]:
        async with paced.lineup(round_trip_s, 1) as lineup:
            asked = Asked(QUESTION, 2, 7, 0.8, 8)
            ways = [METHODS[name] for name in ("DRDG/TW", "coupled, greedy", "coupled, leaderless")]
            return [(await lineup.aggregate(way, asked)).tokens for way in ways]

    oracle, *others = [*loop.run(texts(0.0)), *loop.run(texts(0.3))]
    assert len(oracle) == 8
    assert all(text == oracle for text in others)
