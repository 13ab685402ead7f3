"""The latency figure: what its rows say of the methods, in virtual time and in real processes."""

from pathlib import Path

import pytest

from dragonrt.node import main as programs
from dragonrt.testing import loop
from scripts.papers.dragon import latency as latency_figure
from scripts.papers.dragon.baselines.device import BASELINES
from scripts.papers.dragon.baselines.reading import Asked
from scripts.papers.framework import Settings
from scripts.papers.lineup import ALL, METHODS, paced_models, real_processes

QUESTION = "What do you need to make lemon cake?"


@pytest.mark.slow
def test_every_method_answers_in_virtual_time_and_waits_as_it_must(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(latency_figure, "TOKENS", 6)
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
    connect = paced_models("dragon-small", 0.05)

    async def texts(round_trip_s: float) -> list[list[int]]:
        async with connect(round_trip_s, 1) as lineup:
            asked = Asked(QUESTION, 2, 7, 0.8, 8)
            ways = [METHODS[name] for name in ("DRDG/TW", "coupled, greedy", "coupled, leaderless")]
            return [(await lineup.aggregate(way, asked)).tokens for way in ways]

    oracle, *others = [*loop.run(texts(0.0)), *loop.run(texts(0.3))]
    assert len(oracle) == 8
    assert all(text == oracle for text in others)


@pytest.mark.slow
def test_real_processes_answer_by_every_method() -> None:
    with real_processes("dragon-small") as processes:

        async def ask() -> dict[str, float]:
            asked = Asked(QUESTION, 2, 1, 0.8, 3)
            async with processes(0.02, 1) as lineup:
                return {name: (await lineup.ask(name, asked))["total_ms"] for name in ALL}

        total_ms = programs.run(ask())
    assert list(total_ms) == list(ALL)
    remote = [name for name in ALL if name != "CRCG/device"]
    assert all(total_ms[name] > 10 for name in remote)  # half of the round trip, jitter and all
