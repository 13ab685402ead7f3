"""Double deep Q-learning (van Hasselt, Guez, Silver 2016) with a network of two layers.

The target of a transition is r + γ Q'(s', argmax_a Q(s', a)): the network in training chooses the
action and an older copy of it values it, so that noise is not taken for value.
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

    An episode's end is a time limit, not a terminal state: the value of what comes then is that of
    the features at the end. With the discount 0 an action's value is its own reward.

    Every `train_every` steps, once `warm_up` transitions are there, a `batch` of the newest
    `capacity` improves the network; after `copy_every` improvements the older copy is renewed.
    The result is a running average of the weights; each improvement adds the share `averaging`.
    """

    steps: int
    discount: float
    hidden: int = 64
    learning_rate: float = 1e-3
    batch: int = 256
    capacity: int = 200_000
    warm_up: int = 1_000
    train_every: int = 4
    copy_every: int = 200
    weight_decay: float = 0.03
    averaging: float = 0.0003
    first_epsilon: float = 1.0
    last_epsilon: float = 0.4

    def epsilon(self, step: int) -> float:
        """Return the share of random actions: it falls over the first half, then stays."""
        gone = min(1.0, 2 * step / self.steps)
        return self.first_epsilon + gone * (self.last_epsilon - self.first_epsilon)


class QNetwork(nn.Module):
    """Values of all actions [B, A] for features [B, F]."""

    def __init__(self, inputs: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, hidden)
        self.output = nn.Linear(hidden, actions)

    @override
    def forward(self, features: Tensor) -> Tensor:
        values: Tensor = self.output(torch.relu(self.hidden(features)))
        return values


class Replay:
    """The newest `capacity` transitions."""

    def __init__(self, capacity: int, inputs: int) -> None:
        self._before = np.empty((capacity, inputs), np.float32)
        self._after = np.empty((capacity, inputs), np.float32)
        self._actions = np.empty(capacity, np.int64)
        self._rewards = np.empty(capacity, np.float32)
        self._added = 0

    def __len__(self) -> int:
        return min(self._added, len(self._actions))

    def add(self, before: Features, action: int, reward: float, after: Features) -> None:
        """Keep a transition, in the place of the oldest if there is no other."""
        at = self._added % len(self._actions)
        self._before[at], self._after[at] = before, after
        self._actions[at], self._rewards[at] = action, reward
        self._added += 1

    def sample(self, size: int, generator: np.random.Generator) -> list[Tensor]:
        """Draw `size` of them with replacement: before, actions, rewards, after."""
        at = generator.integers(len(self), size=size)
        arrays = (self._before, self._actions, self._rewards, self._after)
        return [torch.from_numpy(array[at]) for array in arrays]


def initial(inputs: int, hidden: int, actions: int, seed: int) -> QNetwork:
    """Return the network that training with this seed begins from."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return QNetwork(inputs, hidden, actions)


def learn(
    problem: Problem,
    actions: int,
    settings: Hyperparameters,
    seed: int,
    progress: Callable[[int, int], None],
) -> QNetwork:
    """Return the network after `settings.steps` steps; episodes are numbered from `seed`."""
    generator = np.random.default_rng(seed)
    episode = seed
    features = problem.reset(episode)
    network = initial(features.size, settings.hidden, actions, seed)
    older, average = copy.deepcopy(network), copy.deepcopy(network)
    optimizer = torch.optim.AdamW(
        network.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=True,
    )
    replay = Replay(settings.capacity, features.size)
    improved = 0
    for step in range(settings.steps):
        progress(step, settings.steps)
        if generator.random() < settings.epsilon(step):
            action = int(generator.integers(actions))
        else:
            with torch.inference_mode():
                action = int(network(torch.from_numpy(features)).argmax())
        after, reward, done = problem.step(action)
        replay.add(features, action, reward, after)
        if done:
            episode += 1
            after = problem.reset(episode)
        features = after
        if len(replay) < settings.warm_up or step % settings.train_every:
            continue
        before, tried, rewards, then = replay.sample(settings.batch, generator)
        values = network(before).gather(1, tried.unsqueeze(1)).squeeze(1)
        # Values are means: a loss that grows more slowly than the square is drawn to the median.
        wanted = targets(network, older, rewards, then, settings.discount)
        loss = nn.functional.mse_loss(values, wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
        optimizer.step()
        improved += 1
        with torch.no_grad():
            share = max(settings.averaging, 1 / improved)
            for mean, weight in zip(average.parameters(), network.parameters(), strict=True):
                mean.lerp_(weight, share)
        if improved % settings.copy_every == 0:
            older.load_state_dict(network.state_dict())
    return average


def targets(
    network: QNetwork, older: QNetwork, rewards: Tensor, after: Tensor, discount: float
) -> Tensor:
    """Return r + γ Q'(s', argmax_a Q(s', a)): [B]."""
    with torch.no_grad():
        chosen = network(after).argmax(dim=1, keepdim=True)
        valued = older(after).gather(1, chosen).squeeze(1)
    wanted: Tensor = rewards + discount * valued
    return wanted
