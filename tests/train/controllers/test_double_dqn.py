"""Double DQN: its targets, its parts, and a problem whose best policy is known."""

import numpy as np
import pytest
import torch

from scripts.train.controllers.double_dqn import (
    Features,
    Hyperparameters,
    QNetwork,
    learn,
    targets,
)

SETTINGS = Hyperparameters(
    steps=1500,
    discount=0.8,
    hidden=16,
    learning_rate=1e-2,
    batch=64,
    warm_up=200,
    train_every=2,
    copy_every=20,
    weight_decay=0.0,
    averaging=0.02,
    last_epsilon=0.1,
)


class Corridor:
    """Five places in a row; right leads to 1 at the far end, left from the start to 0.2.

    Both end the episode, in the same place; every step costs 0.02. With the discount 0.8 the far
    end is worth going to from everywhere: what comes behind an end counts as going on there.
    """

    def reset(self, seed: int) -> Features:
        self.place = seed % 5
        return self.features

    @property
    def features(self) -> Features:
        features: Features = np.eye(5, dtype=np.float32)[min(max(self.place, 0), 4)]
        return features

    def step(self, action: int) -> tuple[Features, float, bool]:
        self.place += 1 if action == 1 else -1
        reward = 1.0 if self.place == 5 else 0.2 if self.place == -1 else 0.0
        return self.features, reward - 0.02, self.place in (-1, 5)


def values(network: QNetwork) -> Features:
    with torch.inference_mode():
        found: Features = network(torch.eye(5)).numpy()
    return found


@pytest.mark.slow
def test_a_problem_with_a_known_best_policy_is_solved() -> None:
    network = learn(Corridor(), 2, SETTINGS, seed=1, progress=lambda done, of: None)
    found = values(network)
    assert found.argmax(axis=1).tolist() == [1] * 5
    best = 0.98 / (1 - 0.8)
    for place in (4, 3, 2, 1, 0):
        assert found[place, 1] == pytest.approx(best, abs=0.2)
        best = 0.8 * best - 0.02


def constant(actions: list[float]) -> QNetwork:
    """A network that gives the same values to everything."""
    network = QNetwork(2, 3, len(actions))
    with torch.no_grad():
        network.output.weight.zero_()
        network.output.bias.copy_(torch.tensor(actions))
    return network


def test_the_network_chooses_and_an_older_copy_values() -> None:
    network, older = constant([1.0, 3.0, 2.0]), constant([50.0, 7.0, 90.0])
    wanted = targets(
        network,
        older,
        rewards=torch.tensor([1.0, -2.0]),
        after=torch.zeros(2, 2),
        discount=0.5,
    )
    assert wanted.tolist() == [1 + 0.5 * 7, -2 + 0.5 * 7]
