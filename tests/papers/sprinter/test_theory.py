"""`sprinter-theory`: simulated verifiers of known rates are where the theorems say."""

import numpy as np
import pytest

from scripts.papers.intervals import Row
from scripts.papers.sprinter.theory import SprinterCase, measure


def rows_of(runs: bool, eta_tp: float, eta_fp: float, batches: int) -> list[Row]:
    cases = [SprinterCase(runs, eta_tp, eta_fp, seed) for seed in range(batches)]
    return [row for case in cases for row in measure(case)]


@pytest.mark.slow
@pytest.mark.parametrize("runs", [False, True])
def test_the_formulas_hold(runs: bool) -> None:
    rows = rows_of(runs, 0.8, 0.4, 8)
    for theorem in (2, 3) if runs else (1, 7):
        some = [row for row in rows if row["theorem"] == theorem]
        measured = np.array([row["measured"] for row in some])
        error = measured.std(ddof=1) / len(some) ** 0.5
        assert len({row["expected"] for row in some}) == 1
        assert abs(measured.mean() - some[0]["expected"]) < 4 * error
        assert measured.std() > 0
