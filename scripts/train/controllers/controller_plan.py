"""Training of a controller by Double DQN (SPEC 2, "Adaptive control"), and its comparison."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np

from dragonrt.control.learned import Encoding, Learned, NetworkWeights
from dragonrt.control.policies import Action, Heuristic
from dragonrt.errors import TrainingError
from dragonrt.link.markov import MarkovRates
from dragonrt.link.profile import LinkProfile
from scripts.train.controllers.course import Environment, IterationCosts
from scripts.train.controllers.double_dqn import Features, Hyperparameters, QNetwork, initial, learn
from scripts.train.controllers.evaluation import EpisodeScore, best, evaluate, grid
from scripts.train.controllers.model_pair import ModelPair, Tasks
from scripts.train.controllers.prompt import Prompt
from scripts.train.controllers.recording import PairRecording, RecordedEnvironment

EPISODES_PER_TEXT = 2
"""Of the comparison, per held-out text."""

DISCOUNT = 0.0
"""Of the next iteration's value: none, for an action changes little of what comes."""

FIXED_EPISODES = 200
"""Of every fixed action, for the throughput that is to be beaten."""

_CONFIDENCES = 8

# Where the numbers begin that tasks to record, episodes to learn from, those of fixed actions and
# held-out ones have.
_NUMBERS_PER_SEED, _LEARNING, _FIXED, _HELD_OUT = 1_000_000, 100_000, 800_000, 900_000


def encoding(
    rates: MarkovRates, lengths: tuple[int, ...], resolutions: tuple[int, ...]
) -> Encoding:
    """Return the encoding of states and actions for an uplink of such rates."""
    low, high = math.log(rates.low), math.log(rates.high)
    share = rates.low_share
    mean = share * low + (1 - share) * high
    deviation = math.sqrt(share * (1 - share)) * (high - low)
    return Encoding(lengths, resolutions, _CONFIDENCES, mean, max(deviation, 0.1))


@dataclass(frozen=True, slots=True)
class _ControlProblem:
    """An environment as `learn` sees it: features and numbers for states and actions.

    An iteration is worth its tokens less what a fixed action would give in its time: the sum of it
    is largest where the tokens of all iterations over their time are (Dinkelbach 1967, "On
    nonlinear fractional programming"). The mean of each one's tokens per second (QSV Eq. 13) is
    another thing: with it 30.1 tokens/s were learned, so 31.5, and a fixed action gave 31.4.
    """

    environment: Environment
    encoding: Encoding
    throughput: float

    def reset(self, seed: int) -> Features:
        return self.encoding.features(self.environment.reset(seed))

    def step(self, action: int) -> tuple[Features, float, bool]:
        step = self.environment.step(self.encoding.actions[action])
        worth = step.seconds * (step.reward - self.throughput)
        return self.encoding.features(step.state), worth, step.done


def train_controller(
    environment: Environment,
    encoding: Encoding,
    settings: Hyperparameters,
    throughput: float,
    seed: int,
    progress: Callable[[int, int], None],
) -> tuple[Learned, Learned]:
    """Return what Double DQN begins from and what it learns; episodes are numbered from `seed`.

    `throughput` is that of the best fixed action, in tokens per second: what is to be beaten.
    """
    problem = _ControlProblem(environment, encoding, throughput)
    network = learn(problem, len(encoding.actions), settings, seed, progress)
    begun = initial(encoding.inputs, settings.hidden, len(encoding.actions), seed)
    return Learned(encoding, _weights(begun)), Learned(encoding, _weights(network))


def _weights(network: QNetwork) -> NetworkWeights:
    layers = (network.hidden, network.output)
    arrays = [array for layer in layers for array in (layer.weight, layer.bias)]
    return NetworkWeights(*(np.array(array.detach().numpy(), np.float32) for array in arrays))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Scores of the same held-out episodes, by who controlled them."""

    untrained: EpisodeScore
    learned: EpisodeScore
    best_static: Action
    static: EpisodeScore
    heuristic: EpisodeScore

    def rows(self) -> dict[str, EpisodeScore]:
        """Return the scores by each controller's name."""
        length, resolution = self.best_static.length, self.best_static.resolution
        return {
            "untrained": self.untrained,
            "learned": self.learned,
            f"best static, L = {length}, ℓ = {resolution}": self.static,
            f"heuristic, ℓ = {resolution}": self.heuristic,
        }


def compare(
    learned: Learned, before: Learned, environment: Environment, seeds: range
) -> Comparison:
    """Compare a controller with its beginnings, the best fixed action and the heuristic.

    The heuristic has the resolution of the best fixed action.
    """
    statics = grid(environment, learned.encoding.lengths, learned.encoding.resolutions, seeds)
    chosen = best(statics)
    untrained, trained, heuristic = (
        evaluate(controller, environment, seeds)
        for controller in (before, learned, Heuristic(chosen.resolution))
    )
    return Comparison(untrained, trained, chosen, statics[chosen], heuristic)


@dataclass(frozen=True, slots=True)
class ControllerPlan:
    """Everything but the models and the prompts; `steps` blocks are tried in training."""

    codec: str = "qs:100"
    lengths: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10)
    resolutions: tuple[int, ...] = (2, 3, 5, 10, 25, 50, 100)
    link: str = "nb-iot-markov"
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    max_tokens: int = 64
    texts: int = 600
    steps: int = 300_000
    seed: int = 0

    def tasks(self, prompts: tuple[Prompt, ...]) -> Tasks:
        """Return the tasks of answering these prompts."""
        return Tasks(prompts, self.temperatures, self.max_tokens)

    def costs(self, vocabulary: int) -> IterationCosts:
        """Return what an iteration takes over the link. Raises LinkError or TrainingError."""
        profile = LinkProfile.load(self.link)
        if profile.up_rates is None:
            raise TrainingError(
                f"the link {self.link} has no Markov rates upwards: choose nb-iot-markov, "
                "lora-markov, lte-markov or a file with up_low, up_high, up_to_low and up_to_high"
            )
        costs = IterationCosts(profile.up_rates, vocabulary, round_trip_s=2 * profile.latency_s)
        return costs if profile.down is None else replace(costs, down_rate=profile.down)

    def record(
        self, pair: ModelPair, tasks: Tasks, progress: Callable[[int, int], None]
    ) -> PairRecording:
        """Record as many answers of the models as planned."""
        first = self.seed * _NUMBERS_PER_SEED
        seeds = range(first, first + self.texts)
        return pair.record(tasks, self.codec, self.resolutions, seeds, progress)

    def train(
        self, recording: PairRecording, progress: Callable[[int, int], None]
    ) -> tuple[Learned, Comparison]:
        """Learn from a recording's first part; compare on its second part.

        Raises TrainingError if the recording is of another codec or of other resolutions.
        """
        if (recording.codec, recording.resolutions) != (self.codec, self.resolutions):
            raise TrainingError(
                f"the recording is of {recording.codec} at the resolutions "
                f"{', '.join(map(str, recording.resolutions))}: make one of {self.codec} anew"
            )
        costs = self.costs(recording.vocabulary)
        seen, held_out = recording.split()
        environment = RecordedEnvironment(seen, costs)
        first = self.seed * _NUMBERS_PER_SEED
        tried = range(first + _FIXED, first + _FIXED + min(FIXED_EPISODES, 2 * len(seen.texts)))
        fixed = grid(environment, self.lengths, self.resolutions, tried)
        before, learned = train_controller(
            environment,
            encoding(costs.up, self.lengths, self.resolutions),
            Hyperparameters(self.steps, discount=DISCOUNT),
            fixed[best(fixed)].tokens_per_s,
            first + _LEARNING,
            progress,
        )
        episodes = EPISODES_PER_TEXT * len(held_out.texts)
        numbers = range(first + _HELD_OUT, first + _HELD_OUT + episodes)
        compared = compare(learned, before, RecordedEnvironment(held_out, costs), numbers)
        about = {
            "draft": recording.draft,
            "target": recording.target,
            "environment": "recorded",
            **asdict(self),
            "costs": asdict(costs),
            "held_out_tokens_per_s": {
                name: round(score.tokens_per_s, 3) for name, score in compared.rows().items()
            },
        }
        return replace(learned, trained_on=about), compared
