"""`sprinter-theory`: simulated verifiers of known rates are where the theorems say."""

from pathlib import Path

import numpy as np
import pytest

from scripts.papers.intervals import Row, estimates
from scripts.papers.sprinter import theory as sprinter_theory
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


def test_summary_and_picture_come_from_the_rows(tmp_path: Path) -> None:
    rows = [
        {
            "theorem": theorem,
            "eta_tp": eta_tp,
            "eta_fp": eta_fp,
            "seed": seed,
            "measured": 1.0 + 0.1 * (seed - 1),
            "expected": 1.0 if theorem != 7 else 2.0,
        }
        for theorem in sprinter_theory.TITLES
        for eta_tp in (0.5, 0.9)
        for eta_fp in (0.1, 0.5)
        for seed in range(3)
    ]
    assert len(estimates(rows, "measured", "theorem")) == 4
    summary = sprinter_theory.summarise(rows)
    assert summary["theorem 1"] == {"points": 4, "within": 4, "largest_difference": 0.0}
    assert summary["theorem 7"] == {"points": 4, "within": 0, "largest_difference": 1.0}
    sprinter_theory.plot(rows, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
