"""The fit separates what is separable and learns how likely the rest is; scores as defined."""

import numpy as np
import pytest

from dragonrt.errors import TrainingError
from scripts.train.verifiers.training import Labelled, auc, fit, rates

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


def test_rates_are_shares_of_each_sort() -> None:
    said, acceptable = np.array((0.9, 0.5, 0.2, 0.6, 0.1)), np.array((1, 1, 1, 0, 0), bool)
    assert rates(said, acceptable, 0.5) == pytest.approx((2 / 3, 0.5))
    assert auc(said, acceptable) == pytest.approx(4 / 6)
    with pytest.raises(TrainingError):
        auc(said, said > 0)
