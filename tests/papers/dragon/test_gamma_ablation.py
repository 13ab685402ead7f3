"""`gamma`: acceptance is what Eq. 5 says, and grows as Theorem 4.2 says."""

from itertools import pairwise

import numpy as np
import pytest

from dragonrt.side import SIDES
from scripts.papers.dragon import gamma_ablation
from scripts.papers.dragon.gamma_ablation import draws, received
from scripts.papers.teacher_forced import AnswerPosition

TOKENS = 8


def position(step: int) -> AnswerPosition:
    random = np.random.default_rng(step)
    shared = 2 * random.standard_normal(40)
    p, q = (np.exp(shared + random.standard_normal(40)) for _ in range(2))
    device, cloud = ((each / each.sum()).astype(np.float32) for each in (p, q))
    return AnswerPosition(0, step, device, cloud, (0.3, 0.7))


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
