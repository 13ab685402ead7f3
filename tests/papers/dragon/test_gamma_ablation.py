"""`gamma`: acceptance is what Eq. 5 says, and grows as Theorem 4.2 says."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from scripts.papers import teacher_forced
from scripts.papers.dragon import gamma_ablation
from scripts.papers.dragon.gamma_ablation import SIDES, draws, received
from scripts.papers.framework import Settings
from scripts.papers.intervals import having
from scripts.papers.teacher_forced import AnswerPosition

TOKENS = 8


def position(step: int) -> AnswerPosition:
    random = np.random.default_rng(step)
    shared = 2 * random.standard_normal(40)
    p, q = (np.exp(shared + random.standard_normal(40)) for _ in range(2))
    device, cloud = ((each / each.sum()).astype(np.float32) for each in (p, q))
    return AnswerPosition(0, step, device, cloud, (0.3, 0.7))


class FakeSides:
    """A reading of made-up distributions."""

    def positions(self, questions: int, tokens: int, seed: int) -> list[AnswerPosition]:
        return [position(step) for step in range(TOKENS)]


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_what_is_measured_is_what_is_expected(gamma: float) -> None:
    count = 500
    found = draws([received(position(1))], gamma, range(count))
    for side in SIDES:
        expected = found[0][0][f"expected_{side}"]
        assert 0.2 < expected < 0.95
        accepted = np.mean([columns[f"accepted_{side}"] for columns, _ in found])
        error = 3.5 * (expected * (1 - expected) / count) ** 0.5
        assert accepted == pytest.approx(expected, abs=error)


def test_acceptance_grows_with_gamma_between_its_bounds() -> None:
    positions = [received(position(step)) for step in range(TOKENS)]
    by_gamma = [draws(positions, gamma, [0])[0][0] for gamma in gamma_ablation.GAMMAS]
    for side, order in (("device", by_gamma), ("cloud", by_gamma[::-1])):
        alphas = [row[f"expected_{side}"] for row in order]
        assert all(lower < higher for lower, higher in pairwise(alphas))
        assert alphas[0] == pytest.approx(order[0][f"least_{side}"])
        assert alphas[-1] == pytest.approx(order[0][f"most_{side}"])
        assert order[0][f"smallest_gain_{side}"] >= 0


def test_rows_summary_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher_forced.BothSides, "load", lambda model: FakeSides())
    monkeypatch.setattr(gamma_ablation, "GAMMAS", (0.0, 1.0))
    monkeypatch.setattr(gamma_ablation, "SEQUENCES", 1)
    rows = gamma_ablation.run(Settings(True, False, 1, 0, tmp_path), lambda done, total: None)
    assert len(rows) == 2 * 3
    floor_ms = 1000 * gamma_ablation.PACE.device_s
    assert all(row["ms_per_token"] >= floor_ms - 1e-6 for row in rows)
    summary = gamma_ablation.summarise(rows)
    assert summary["positions"] == TOKENS
    at = summary["γ = 1"]
    expected = having(rows, gamma=1.0)[0]["expected_cloud"]
    assert at["cloud"]["expected"] == pytest.approx(expected, abs=1e-4)
    assert at["ms per token"]["device"]["Eq. 7"] == pytest.approx(
        50 + 300 * (1 - expected), abs=0.01
    )
    assert "Eq. 7" not in at["ms per token"]["greedy"]
    gamma_ablation.plot(rows, tmp_path / "gamma.png")
    assert (tmp_path / "gamma.png").stat().st_size > 10_000
