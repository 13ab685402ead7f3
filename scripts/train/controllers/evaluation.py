"""What a controller achieves, and the best that one fixed action does."""

from collections.abc import Sequence
from dataclasses import dataclass

from dragonrt.control.policies import Action, Controller, Static
from scripts.train.controllers.course import Environment


@dataclass(frozen=True, slots=True)
class EpisodeScore:
    """Totals over episodes; `reward` is the sum over iterations of their reward."""

    tokens: int
    seconds: float
    iterations: int
    reward: float

    @property
    def tokens_per_s(self) -> float:
        """The throughput over all episodes."""
        return self.tokens / self.seconds

    @property
    def mean_reward(self) -> float:
        """The reward of an iteration, in tokens per second."""
        return self.reward / self.iterations


def evaluate(
    controller: Controller, environment: Environment, seeds: Sequence[int]
) -> EpisodeScore:
    """The episodes of these seeds under a controller."""
    tokens = iterations = 0
    seconds = reward = 0.0
    for seed in seeds:
        state, done = environment.reset(seed), False
        while not done:
            step = environment.step(controller.choose(state))
            state, done = step.state, step.done
            tokens += step.tokens
            seconds += step.seconds
            reward += step.reward
            iterations += 1
    return EpisodeScore(tokens, seconds, iterations, reward)


def grid(
    environment: Environment,
    lengths: Sequence[int],
    resolutions: Sequence[int],
    seeds: Sequence[int],
) -> dict[Action, EpisodeScore]:
    """The score of every fixed action."""
    actions = [Action(length, resolution) for length in lengths for resolution in resolutions]
    return {action: evaluate(Static(action), environment, seeds) for action in actions}


def best(scores: dict[Action, EpisodeScore]) -> Action:
    """The action of the highest throughput; ties: the first."""
    return max(scores, key=lambda action: scores[action].tokens_per_s)
