"""The fit separates what is separable and learns how likely the rest is; scores as defined."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from scripts.train.verifiers.training import Labelled, Scores, fit

FEATURES = 6


def data(seed: int, noise: float, number: int = 3000) -> Labelled:
    random = np.random.default_rng(seed)
    features = random.normal(3.0, 5.0, (number, FEATURES)).astype(np.float32)
    features[:, 5] = 7.0  # one that never changes
    logits = features @ np.array((1, -1, 0.5, 0, 0, 0)) - 2 + noise * random.normal(size=number)
    return features, logits > 0


def test_separable_data_are_separated() -> None:
    weight, bias = fit(data(1, 0))
    features, labels = data(3, 0)
    assert ((features @ weight + bias > 0) == labels).mean() > 0.97


def test_noisy_labels_are_as_likely_as_they_occur() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(40_000, 2)).astype(np.float32)
    weight, bias = fit((features, random.random(40_000) < 0.75))
    likely = 1 / (1 + np.exp(-(features @ weight + bias)))
    np.testing.assert_allclose(likely, 0.75, atol=0.05)


def scores(seed: int, number: int = 60) -> Scores:
    random = np.random.default_rng(seed)
    acceptable = random.random(number) < 0.4
    # few values, so that there are ties
    raised: NDArray[np.float64] = random.random(number) + 0.3 * acceptable
    probabilities = np.clip(np.round(raised, 1), 0, 1)
    return Scores(probabilities, acceptable)


def test_rates_are_shares_of_each_sort() -> None:
    made = Scores(np.array((0.9, 0.5, 0.2, 0.6, 0.1)), np.array((True, True, True, False, False)))
    assert made.rates(0.5) == pytest.approx((2 / 3, 0.5))
    assert made.to_json(0.5) == {
        "samples": 5,
        "acceptable": 0.6,
        "auc": pytest.approx(4 / 6),
        "eta_tp": pytest.approx(2 / 3),
        "eta_fp": 0.5,
    }


def test_the_curve_falls_from_everything_and_its_area_is_the_auc() -> None:
    made = scores(9, 400)
    curve = made.curve()
    assert curve[0] == (0, 1, 1)
    assert all(b[1] <= a[1] and b[2] <= a[2] for a, b in pairwise(curve))
    corners = [(fp, tp) for _, tp, fp in curve] + [(0, 0)]
    area = sum((a[0] - b[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(corners))
    assert area == pytest.approx(made.auc(), abs=1e-3)
