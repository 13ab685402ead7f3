"""Points on all cores: results in the order of the cases, progress to the end."""

import pytest

from scripts.papers.parallel import FEW, measure_all


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, FEW + 4])
def test_results_come_in_order(count: int) -> None:
    heard: list[tuple[int, int]] = []
    results = measure_all(abs, range(-count, 0), lambda done, all_: heard.append((done, all_)))
    assert results == list(range(count, 0, -1))
    assert heard == [(done, count) for done in range(1, count + 1)]
