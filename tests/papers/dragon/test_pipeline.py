"""`pipeline`: what the simulated pair does is what its delays say, and it is drawn."""

import pytest

from scripts.papers.dragon import pipeline
from scripts.papers.framework import Settings
from scripts.papers.intervals import Row


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    settings = Settings(True, False, 1, 0, tmp_path_factory.mktemp("pipeline"))
    return pipeline.run(settings, lambda done, total: None)


def test_its_messages_take_what_the_link_takes(measured: list[Row]) -> None:
    for line in pipeline.timelines(measured).values():
        needed = [each.arrived.t - each.sent.t for each in line.flights if each.arrived]
        shortest = pipeline.PACE.rtt_s / 2
        longest = shortest * (1 + pipeline.PACE.jitter)
        assert len(needed) > 50
        assert all(shortest - 1e-6 <= each <= longest + 1e-6 for each in needed)
