"""The fit separates what is separable, learns soft labels and ends; scores by their definitions."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from scripts.train.verifiers.training import Labelled, LogisticLayer, Scores, fit

FEATURES = 6


def data(seed: int, noise: float, number: int = 3000) -> Labelled:
    random = np.random.default_rng(seed)
    features = random.normal(3.0, 5.0, (number, FEATURES)).astype(np.float32)
    features[:, 5] = 7.0  # one that never changes
    logits = features @ np.array((1, -1, 0.5, 0, 0, 0)) - 2 + noise * random.normal(size=number)
    return features, (logits > 0).astype(np.float32)


def accuracy(layer: LogisticLayer, labelled: Labelled) -> float:
    features, labels = labelled
    return float(((layer.probabilities(features) > 0.5) == (labels > 0.5)).mean())


@pytest.mark.slow
def test_separable_data_are_separated() -> None:
    layer = fit(data(1, 0), data(2, 0), epochs=200, seed=0)
    assert accuracy(layer, data(3, 0)) > 0.97


@pytest.mark.slow
def test_soft_labels_are_predicted() -> None:
    features = np.random.default_rng(0).normal(size=(4000, 2)).astype(np.float32)
    constant = features, np.full(4000, 0.75, np.float32)
    layer = fit(constant, constant, 200, 0)
    np.testing.assert_allclose(layer.probabilities(features), 0.75, atol=0.02)


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
