"""The fit: separable data are separated, soft labels are learned, and it ends in time."""

import numpy as np
import pytest

from scripts.train.verifiers.fit import Labelled, LogisticLayer, fit

FEATURES = 6


def data(seed: int, noise: float, number: int = 3000) -> Labelled:
    random = np.random.default_rng(seed)
    features = random.normal(3.0, 5.0, (number, FEATURES)).astype(np.float32)
    features[:, 5] = 7.0  # one that never changes
    logits = features @ np.array((1, -1, 0.5, 0, 0, 0)) - 2 + noise * random.normal(size=number)
    return Labelled(features, (logits > 0).astype(np.float32))


def accuracy(layer: LogisticLayer, labelled: Labelled) -> float:
    said = layer.probabilities(labelled.features) > 0.5
    return float((said == (labelled.labels > 0.5)).mean())


@pytest.mark.slow
def test_separable_data_are_separated() -> None:
    layer = fit(data(1, 0), data(2, 0), epochs=200, seed=0)
    assert accuracy(layer, data(3, 0)) > 0.97


def test_noise_is_not_learned_by_heart() -> None:
    few, held_out = data(4, 1e6, 60), data(5, 1e6)
    layer = fit(few, held_out, epochs=500, seed=0)
    assert layer.epochs < 100
    assert layer.loss < np.log(2) + 0.01


def test_the_same_seed_gives_the_same_layer() -> None:
    first, second = (fit(data(1, 1, 300), data(2, 1, 300), epochs=3, seed=7) for _ in range(2))
    assert np.array_equal(first.weight, second.weight)
    assert first.bias == second.bias


@pytest.mark.slow
@pytest.mark.parametrize(("refusal_weight", "predicted"), [(1.0, 0.75), (6.0, 1 / 3)])
def test_soft_labels_are_predicted_in_the_weighted_odds(
    refusal_weight: float, predicted: float
) -> None:
    features = np.random.default_rng(0).normal(size=(4000, 2)).astype(np.float32)
    constant = Labelled(features, np.full(4000, 0.75, np.float32))
    layer = fit(constant, constant, 200, 0, refusal_weight)
    # the loss is least where a / (1 - a) = y / (refusal_weight · (1 - y))
    np.testing.assert_allclose(layer.probabilities(features), predicted, atol=0.02)
