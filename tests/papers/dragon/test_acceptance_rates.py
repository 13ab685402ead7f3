"""Measured acceptance: what the rules do is what the formulas say, on known distributions."""

import numpy as np
import pytest

from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from scripts.papers.dragon import acceptance_rates
from scripts.papers.teacher_forced import AnswerPosition


def position(step: int, sharpness: float = 3.0) -> AnswerPosition:
    random = np.random.default_rng(step)
    shared = sharpness * random.standard_normal(40)
    p, q = (np.exp(shared + random.standard_normal(40)) for _ in range(2))
    return AnswerPosition(
        step % 3,
        step,
        (p / p.sum()).astype(np.float32),
        (q / q.sum()).astype(np.float32),
        (0.3, 0.7),
    )


@pytest.mark.parametrize("name", acceptance_rates.RULES)
def test_what_is_measured_is_what_is_expected(name: str) -> None:
    noises = [Noise(seed) for seed in range(600)]
    for row in acceptance_rates.rows_of(position(1), 1, name, Sampler(0.8), noises):
        error = 3.5 * (row["expected"] * (1 - row["expected"]) / 600) ** 0.5
        assert 0.2 < row["expected"] < 1
        assert row["accepted"] == pytest.approx(row["expected"], abs=error)


def test_without_temperature_nothing_is_left_to_chance() -> None:
    noises = [Noise(seed) for seed in range(5)]
    for name in acceptance_rates.RULES:
        for row in acceptance_rates.rows_of(position(2), 2, name, Sampler(0.0), noises):
            assert row["draws"] == 1
            assert row["accepted"] in (0, 1)
            assert row["expected"] is None
