"""`acceptance` and `gamma`: measured on known distributions, it is what the formulas say."""

from itertools import pairwise

import numpy as np
import pytest

from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import SIDES
from scripts.papers.dragon import acceptance_rates, gamma_ablation
from scripts.papers.dragon.gamma_ablation import draws, received
from scripts.papers.teacher_forced import AnswerPosition


def position(step: int) -> AnswerPosition:
    random = np.random.default_rng(step)
    shared = 2 * random.standard_normal(40)
    p, q = (np.exp(shared + random.standard_normal(40)) for _ in range(2))
    device, cloud = ((each / each.sum()).astype(np.float32) for each in (p, q))
    return AnswerPosition(0, step, device, cloud, (0.3, 0.7))


@pytest.mark.parametrize("name", acceptance_rates.RULES)
def test_rules_accept_what_is_expected(name: str) -> None:
    noises = [Noise(seed) for seed in range(600)]
    for row in acceptance_rates.rows_of(position(1), 1, name, Sampler(0.8), noises):
        error = 3.5 * (row["expected"] * (1 - row["expected"]) / 600) ** 0.5
        assert 0.2 < row["expected"] < 1
        assert row["accepted"] == pytest.approx(row["expected"], abs=error)
    for row in acceptance_rates.rows_of(position(2), 2, name, Sampler(0.0), noises):
        assert (row["draws"], row["expected"]) == (1, None), "no temperature leaves no chance"
        assert row["accepted"] in (0, 1)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_gamma_accepts_what_is_expected(gamma: float) -> None:
    count = 500
    found = draws([received(position(1))], gamma, range(count))
    for side in SIDES:
        expected = found[0][0][f"expected_{side}"]
        assert 0.2 < expected < 0.95
        accepted = np.mean([columns[f"accepted_{side}"] for columns, _ in found])
        error = 3.5 * (expected * (1 - expected) / count) ** 0.5
        assert accepted == pytest.approx(expected, abs=error)


def test_acceptance_grows_with_gamma_between_its_bounds() -> None:
    positions = [received(position(step)) for step in range(8)]
    by_gamma = [draws(positions, gamma, [0])[0][0] for gamma in gamma_ablation.GAMMAS]
    for side, order in (("device", by_gamma), ("cloud", by_gamma[::-1])):
        alphas = [row[f"expected_{side}"] for row in order]
        assert all(lower < higher for lower, higher in pairwise(alphas))
        assert alphas[0] == pytest.approx(order[0][f"least_{side}"])
        assert alphas[-1] == pytest.approx(order[0][f"most_{side}"])
        assert order[0][f"smallest_gain_{side}"] >= 0
