"""Training of a controller by Double DQN, in any environment (SPEC 2, "Adaptive control")."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dragonrt.control import Encoding, Learned, Weights
from dragonrt.link.markov import MarkovRates
from dragonrt.training.course import Environment
from dragonrt.training.double_dqn import Features, QNetwork, Settings, learn

CONFIDENCES = 6
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12)
RESOLUTIONS = (2, 5, 10, 25, 50, 100)


def encoding(
    rates: MarkovRates,
    lengths: tuple[int, ...] = LENGTHS,
    resolutions: tuple[int, ...] = RESOLUTIONS,
) -> Encoding:
    """States and actions for an uplink of such rates."""
    low, high = math.log(rates.low), math.log(rates.high)
    share = rates.low_share
    mean = share * low + (1 - share) * high
    deviation = math.sqrt(share * (1 - share)) * (high - low)
    return Encoding(lengths, resolutions, CONFIDENCES, mean, max(deviation, 0.1))


class _ControlProblem:
    """An environment as `learn` sees it: features and numbers for states and actions."""

    def __init__(self, environment: Environment, encoding: Encoding) -> None:
        self._environment = environment
        self._encoding = encoding
        self._actions = encoding.actions

    def reset(self, seed: int) -> Features:
        return self._encoding.features(self._environment.reset(seed))

    def step(self, action: int) -> tuple[Features, float, bool]:
        step = self._environment.step(self._actions[action])
        return self._encoding.features(step.state), step.reward, step.done


def train_controller(
    environment: Environment,
    encoding: Encoding,
    settings: Settings,
    seed: int,
    progress: Callable[[int, int], None],
    name: str,
    trained_on: Mapping[str, Any],
) -> Learned:
    """What Double DQN learns in an environment; its episodes are numbered from `seed` on."""
    problem = _ControlProblem(environment, encoding)
    network = learn(problem, len(encoding.actions), settings, seed, progress)
    return Learned(name, encoding, _weights(network), trained_on)


def _weights(network: QNetwork) -> Weights:
    arrays = (
        network.hidden.weight,
        network.hidden.bias,
        network.output.weight,
        network.output.bias,
    )
    return Weights(*(np.array(array.detach().numpy(), np.float32) for array in arrays))
