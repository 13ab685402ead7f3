"""Training of a controller by Double DQN, in any environment (SPEC 2, "Adaptive control")."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dragonrt.control.artefact import Arrays
from dragonrt.control.learned import Encoding, Learned
from dragonrt.control.policies import Action, Controller, Heuristic
from dragonrt.link.markov import MarkovRates
from scripts.train.controllers.course import Environment
from scripts.train.controllers.double_dqn import Features, Hyperparameters, QNetwork, initial, learn
from scripts.train.controllers.evaluation import EpisodeScore, best, evaluate, grid

CONFIDENCES = 8


def encoding(
    rates: MarkovRates, lengths: tuple[int, ...], resolutions: tuple[int, ...]
) -> Encoding:
    """States and actions for an uplink of such rates."""
    low, high = math.log(rates.low), math.log(rates.high)
    share = rates.low_share
    mean = share * low + (1 - share) * high
    deviation = math.sqrt(share * (1 - share)) * (high - low)
    return Encoding(lengths, resolutions, CONFIDENCES, mean, max(deviation, 0.1))


def train_controller(
    environment: Environment,
    encoding: Encoding,
    settings: Hyperparameters,
    throughput: float,
    seed: int,
    progress: Callable[[int, int], None],
) -> Learned:
    """What Double DQN learns in an environment; its episodes are numbered from `seed` on.

    `throughput` is that of the best fixed action, in tokens per second: what is to be beaten.
    """
    problem = _ControlProblem(environment, encoding, throughput)
    network = learn(problem, len(encoding.actions), settings, seed, progress)
    return Learned(encoding, _weights(network))


def untrained(encoding: Encoding, settings: Hyperparameters, seed: int) -> Learned:
    """What training with this seed begins from."""
    network = initial(encoding.inputs, settings.hidden, len(encoding.actions), seed)
    return Learned(encoding, _weights(network))


class _ControlProblem:
    """An environment as `learn` sees it: features and numbers for states and actions.

    An iteration is worth its tokens less what a fixed action would give in its time: the sum of it
    is largest where the tokens of all iterations over their time are (Dinkelbach 1967, "On
    nonlinear fractional programming"). The mean of each one's tokens per second (QSV Eq. 13) is
    another thing: with it 30.1 tokens/s were learned, so 31.5, and a fixed action gave 31.4.
    """

    def __init__(self, environment: Environment, encoding: Encoding, throughput: float) -> None:
        self._environment = environment
        self._throughput = throughput
        self._encoding = encoding
        self._actions = encoding.actions

    def reset(self, seed: int) -> Features:
        return self._encoding.features(self._environment.reset(seed))

    def step(self, action: int) -> tuple[Features, float, bool]:
        step = self._environment.step(self._actions[action])
        worth = step.seconds * (step.reward - self._throughput)
        return self._encoding.features(step.state), worth, step.done


def _weights(network: QNetwork) -> Arrays:
    arrays = {
        "hidden": network.hidden.weight,
        "hidden_bias": network.hidden.bias,
        "output": network.output.weight,
        "output_bias": network.output.bias,
    }
    return {name: np.array(each.detach().numpy(), np.float32) for name, each in arrays.items()}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Scores of the same held-out episodes, by who controlled them."""

    untrained: EpisodeScore
    learned: EpisodeScore
    best_static: Action
    static: EpisodeScore
    heuristic: EpisodeScore

    def rows(self) -> dict[str, EpisodeScore]:
        """The scores, by what each controller is called."""
        return {
            "untrained": self.untrained,
            "learned": self.learned,
            f"best static, L = {self.best_static.length}, ℓ = {self.best_static.resolution}": (
                self.static
            ),
            f"heuristic, ℓ = {self.best_static.resolution}": self.heuristic,
        }


def compare(
    learned: Learned, before: Learned, environment: Environment, seeds: range
) -> Comparison:
    """A controller against its beginnings, the best fixed action and the heuristic.

    Every fixed action of the controller's own is tried; the heuristic has the resolution of the
    best of them.
    """
    statics = grid(environment, learned.encoding.lengths, learned.encoding.resolutions, seeds)
    chosen = best(statics)

    def score(controller: Controller) -> EpisodeScore:
        return evaluate(controller, environment, seeds)

    return Comparison(
        score(before),
        score(learned),
        chosen,
        statics[chosen],
        score(Heuristic(chosen.resolution)),
    )
