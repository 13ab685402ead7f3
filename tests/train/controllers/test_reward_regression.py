"""Learning by rewards: a problem whose values are known."""

import numpy as np
import pytest
import torch

from scripts.train.controllers.reward_regression import Features, Hyperparameters, learn

SETTINGS = Hyperparameters(
    steps=1500,
    hidden=16,
    learning_rate=1e-2,
    batch=64,
    warm_up=200,
    train_every=2,
    weight_decay=0.0,
    averaging=0.02,
    last_epsilon=0.1,
)


class Places:
    """Three places in turn; in each another one of two actions gives 1, with noise of mean 0."""

    def reset(self, seed: int) -> Features:
        self.random, self.place = np.random.default_rng(seed), seed % 3
        return self.features

    @property
    def features(self) -> Features:
        features: Features = np.eye(3, dtype=np.float32)[self.place]
        return features

    def step(self, action: int) -> tuple[Features, float, bool]:
        reward = float(action == self.place % 2) + self.random.choice([-0.5, 0.5])
        self.place = (self.place + 1) % 3
        return self.features, reward, self.place == 0


@pytest.mark.slow
def test_the_values_are_the_mean_rewards() -> None:
    network = learn(Places(), 2, SETTINGS, seed=1, progress=lambda done, of: None)
    with torch.inference_mode():
        found = network(torch.eye(3)).numpy()
    assert found == pytest.approx(np.array([[1, 0], [0, 1], [1, 0]]), abs=0.2)
