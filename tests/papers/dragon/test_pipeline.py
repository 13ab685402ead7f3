"""`pipeline`: what the simulated pair does is what its delays say, and it is drawn."""

from pathlib import Path

import pytest

from scripts.papers.dragon import pipeline
from scripts.papers.framework import Settings
from scripts.papers.intervals import Row, having


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    settings = Settings(True, False, 1, 0, tmp_path_factory.mktemp("pipeline"))
    return pipeline.run(settings, lambda done, total: None)


def test_a_simulated_pair_shows_what_the_runtime_did(measured: list[Row]) -> None:
    summary = pipeline.summarise(measured)
    assert list(summary) == [way.name for way in pipeline.WAYS]
    floor_ms = 1000 * max(pipeline.PACE.forward_s.values())
    synchronous_ms = 1000 * pipeline.PACE.rtt_s + floor_ms
    for way in summary.values():
        assert way["tokens"] == pipeline.TOKENS_QUICK
        assert floor_ms <= way["ms_per_token_after_the_first"] < synchronous_ms
    greedy, leaderless = summary.values()
    assert greedy["switches"] > 0
    assert leaderless["switches"] == 0


def test_its_messages_take_what_the_link_takes(measured: list[Row]) -> None:
    for line in pipeline._timelines(measured).values():
        needed = [
            flight.end_s - flight.start_s for flight in line.flights if flight.end_s is not None
        ]
        shortest = pipeline.PACE.rtt_s / 2
        longest = shortest * (1 + pipeline.PACE.jitter)
        assert len(needed) > 50
        assert all(shortest - 1e-6 <= each <= longest + 1e-6 for each in needed)


@pytest.mark.slow
def test_every_way_has_its_picture(measured: list[Row], tmp_path: Path) -> None:
    pipeline.plot(measured, tmp_path / "pipeline.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "pipeline-leaderless.png",
        "pipeline.png",
    ]


@pytest.mark.slow
def test_one_side_alone_has_its_pictures_too(measured: list[Row], tmp_path: Path) -> None:
    rows = having(measured, side="device")
    assert {len(line.tracks) for line in pipeline._timelines(rows).values()} == {1}
    pipeline.plot(rows, tmp_path / "pipeline.png")
    assert (tmp_path / "pipeline-leaderless.png").stat().st_size > 10_000
