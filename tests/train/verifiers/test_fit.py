"""The fit: separable data are separated, soft labels are learned, and it ends in time."""

import numpy as np
import pytest

from scripts.train.verifiers.training import Labelled, LogisticLayer, fit

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
