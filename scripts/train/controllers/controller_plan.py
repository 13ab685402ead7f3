"""What a controller is trained for and with, from models and a link to scores."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from dragonrt.control.learned import Learned
from dragonrt.errors import TrainingError
from dragonrt.link.profile import LinkProfile
from scripts.train.controllers.controller import (
    Comparison,
    compare,
    encoding,
    train_controller,
    untrained,
)
from scripts.train.controllers.course import IterationCosts
from scripts.train.controllers.double_dqn import Hyperparameters
from scripts.train.controllers.evaluation import best, grid
from scripts.train.controllers.live import LiveEnvironment
from scripts.train.controllers.model_pair import ModelPair, Tasks
from scripts.train.controllers.prompt import Prompt
from scripts.train.controllers.recording import PairRecording, RecordedEnvironment

EPISODES_PER_TEXT = 2
"""Of the comparison, per held-out text."""

DISCOUNT = 0.0
"""Of the next iteration's value: none, for an action changes little of what comes."""

FIXED_EPISODES = 200
"""Of every fixed action, for the throughput that is to be beaten."""

# Where the numbers begin that tasks to record, episodes to learn from, those of fixed actions and
# held-out ones have.
_NUMBERS_PER_SEED, _LEARNING, _FIXED, _HELD_OUT = 1_000_000, 100_000, 800_000, 900_000


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
        """Answers to these prompts."""
        return Tasks(prompts, self.temperatures, self.max_tokens)

    def costs(self, vocabulary: int) -> IterationCosts:
        """What an iteration takes over the link. Raises LinkError or TrainingError."""
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
        """As many answers as planned, by the models."""
        first = self.seed * _NUMBERS_PER_SEED
        seeds = range(first, first + self.texts)
        return pair.record(tasks, self.codec, self.resolutions, seeds, progress)

    def train(
        self,
        recording: PairRecording,
        live: tuple[ModelPair, Tasks] | None,
        progress: Callable[[int, int], None],
    ) -> tuple[Learned, Comparison]:
        """Learn from a recording's first part, or `live`; compare on its second part.

        Raises TrainingError if the recording is of another codec or of other resolutions.
        """
        if (recording.codec, recording.resolutions) != (self.codec, self.resolutions):
            raise TrainingError(
                f"the recording is of {recording.codec} at the resolutions "
                f"{', '.join(map(str, recording.resolutions))}: make one of {self.codec} anew"
            )
        costs = self.costs(recording.vocabulary)
        seen, held_out = recording.split()
        recorded = RecordedEnvironment(seen, costs)
        environment = recorded if live is None else LiveEnvironment(*live, self.codec, costs)
        encoded = encoding(costs.up, self.lengths, self.resolutions)
        dqn = Hyperparameters(self.steps, discount=DISCOUNT)
        first = self.seed * _NUMBERS_PER_SEED
        tried = range(first + _FIXED, first + _FIXED + min(FIXED_EPISODES, 2 * len(seen.texts)))
        fixed = grid(recorded, self.lengths, self.resolutions, tried)
        throughput = fixed[best(fixed)].tokens_per_s
        learned = train_controller(
            environment, encoded, dqn, throughput, first + _LEARNING, progress
        )
        episodes = EPISODES_PER_TEXT * len(held_out.texts)
        compared = compare(
            learned,
            untrained(encoded, dqn, first + _LEARNING),
            RecordedEnvironment(held_out, costs),
            range(first + _HELD_OUT, first + _HELD_OUT + episodes),
        )
        about = {
            "draft": recording.draft,
            "target": recording.target,
            "environment": "recorded" if live is None else "live",
            **asdict(self),
            "costs": asdict(costs),
            "held_out_tokens_per_s": {
                name: round(score.tokens_per_s, 3) for name, score in compared.rows().items()
            },
        }
        return replace(learned, trained_on=about), compared
