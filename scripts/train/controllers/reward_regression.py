"""Learn what each action is worth: a network of two layers, fitted to the rewards of what is tried.

It is Double DQN (van Hasselt, Guez, Silver 2016) with the discount 0. An action changes little of
what comes, so its value is its own reward, and there is no target network: see the card of the
bundled controllers for what a discount was worth.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

Features = NDArray[np.float32]


class Problem(Protocol):
    """What is learned: features [F] and numbered actions. It goes on for ever."""

    def reset(self, seed: int) -> Features:
        """Begin the episode of this number."""

    def step(self, action: int) -> tuple[Features, float, bool]:
        """Return the features then, the reward, and whether the episode is over."""


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """How long and how fast is learned.

    Every `train_every` steps, once `warm_up` rewards are there, a `batch` of the newest `capacity`
    improves the network. The result is a running average of the weights; each improvement adds the
    share `averaging`.
    """

    steps: int
    hidden: int = 64
    learning_rate: float = 1e-3
    batch: int = 256
    capacity: int = 200_000
    warm_up: int = 1_000
    train_every: int = 4
    weight_decay: float = 0.03
    averaging: float = 0.0003
    first_epsilon: float = 1.0
    last_epsilon: float = 0.4

    def epsilon(self, step: int) -> float:
        """Return the share of random actions: it falls over the first half, then stays."""
        gone = min(1.0, 2 * step / self.steps)
        return self.first_epsilon + gone * (self.last_epsilon - self.first_epsilon)


class ValueNetwork(nn.Module):
    """Values of all actions [B, A] for features [B, F]."""

    def __init__(self, inputs: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, hidden)
        self.output = nn.Linear(hidden, actions)

    @override
    def forward(self, features: Tensor) -> Tensor:
        values: Tensor = self.output(torch.relu(self.hidden(features)))
        return values


def initial(inputs: int, hidden: int, actions: int, seed: int) -> ValueNetwork:
    """Return the network that training with this seed begins from."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return ValueNetwork(inputs, hidden, actions)


def learn(
    problem: Problem,
    actions: int,
    settings: Hyperparameters,
    seed: int,
    progress: Callable[[int, int], None],
) -> ValueNetwork:
    """Return the network after `settings.steps` steps; episodes are numbered from `seed`."""
    generator = np.random.default_rng(seed)
    episode = seed
    features = problem.reset(episode)
    network = initial(features.size, settings.hidden, actions, seed)
    average = copy.deepcopy(network)
    optimizer = torch.optim.AdamW(
        network.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=True,
    )
    seen = np.empty((settings.capacity, features.size), np.float32)
    tried = np.empty(settings.capacity, np.int64)
    rewards = np.empty(settings.capacity, np.float32)
    improved = 0
    for step in range(settings.steps):
        progress(step, settings.steps)
        if generator.random() < settings.epsilon(step):
            action = int(generator.integers(actions))
        else:
            with torch.inference_mode():
                action = int(network(torch.from_numpy(features)).argmax())
        at = step % settings.capacity
        seen[at], tried[at] = features, action
        features, rewards[at], done = problem.step(action)
        if done:
            episode += 1
            features = problem.reset(episode)
        there = min(step + 1, settings.capacity)
        if there < settings.warm_up or step % settings.train_every:
            continue
        drawn = generator.integers(there, size=settings.batch)
        given, chosen, wanted = (torch.from_numpy(each[drawn]) for each in (seen, tried, rewards))
        values = network(given).gather(1, chosen.unsqueeze(1)).squeeze(1)
        # Values are means: a loss that grows more slowly than the square is drawn to the median.
        loss = nn.functional.mse_loss(values, wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
        optimizer.step()
        improved += 1
        with torch.no_grad():
            share = max(settings.averaging, 1 / improved)
            for mean, weight in zip(average.parameters(), network.parameters(), strict=True):
                mean.lerp_(weight, share)
    return average
