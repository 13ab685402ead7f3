"""Training of a controller by Double DQN (SPEC 2, "Adaptive control"), and its comparison."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter
from rich.table import Table

from dragonrt.cli.console import messages, output, say
from dragonrt.cli.loading import counting
from dragonrt.cli.options import option
from dragonrt.control.artefact import Arrays
from dragonrt.control.learned import Encoding, Learned
from dragonrt.control.policies import Heuristic
from dragonrt.errors import TrainingError
from dragonrt.link.markov import MarkovRates
from scripts.lab.course import (
    CODEC,
    LENGTHS,
    LINK,
    RESOLUTIONS,
    Environment,
    EpisodeScore,
    IterationCosts,
    best,
    evaluate,
    grid,
)
from scripts.lab.model_pair import ModelPair, Tasks
from scripts.lab.prompt import bundled_prompts, corpus_prompts
from scripts.lab.recording import PairRecording, RecordedEnvironment
from scripts.train.artefact import save_controller
from scripts.train.controllers.double_dqn import Features, Hyperparameters, QNetwork, initial, learn

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


def _weights(network: QNetwork) -> Arrays:
    arrays = {
        "hidden": network.hidden.weight,
        "hidden_bias": network.hidden.bias,
        "output": network.output.weight,
        "output_bias": network.output.bias,
    }
    return {name: np.array(each.detach().numpy(), np.float32) for name, each in arrays.items()}


def compare(
    learned: Learned, before: Learned, environment: Environment, seeds: range
) -> dict[str, EpisodeScore]:
    """Return scores of the same episodes by who controls them.

    A controller, its beginnings, the best fixed action, and the heuristic at that one's resolution.
    """
    statics = grid(environment, learned.encoding.lengths, learned.encoding.resolutions, seeds)
    chosen = best(statics)
    heuristic = Heuristic(chosen.resolution)
    return {
        "untrained": evaluate(before, environment, seeds),
        "learned": evaluate(learned, environment, seeds),
        f"best static, L = {chosen.length}, ℓ = {chosen.resolution}": statics[chosen],
        f"heuristic, ℓ = {chosen.resolution}": evaluate(heuristic, environment, seeds),
    }


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerPlan:
    """Everything but the models and the prompts."""

    codec: Annotated[
        str, option("qs:L, ksqs:K:L or csqs:BETA:L; L is chosen anew.", default=CODEC)
    ] = CODEC
    lengths: Annotated[tuple[int, ...], Parameter(parse=False)] = LENGTHS
    resolutions: Annotated[tuple[int, ...], Parameter(parse=False)] = RESOLUTIONS
    link: Annotated[str, option("Profile of a link with Markov rates upwards.", default=LINK)] = (
        LINK
    )
    temperatures: Annotated[
        tuple[float, ...],
        option("Answers have one of these.", "--temperature", default="0, 0.2 ... 1"),
    ] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    max_tokens: Annotated[int, Parameter(parse=False)] = 64
    texts: Annotated[
        int, option("Answers recorded; a third is held out.", default="600", low=3)
    ] = 600
    steps: Annotated[int, option("Blocks that are tried.", default="300000", low=1)] = 300_000
    seed: Annotated[int, option("All chance comes from it.", default="0", low=0)] = 0

    def record(
        self, pair: ModelPair, tasks: Tasks, progress: Callable[[int, int], None]
    ) -> PairRecording:
        """Record as many answers of the models as planned."""
        first = self.seed * _NUMBERS_PER_SEED
        seeds = range(first, first + self.texts)
        return pair.record(tasks, self.codec, self.resolutions, seeds, progress)

    def train(
        self, recording: PairRecording, progress: Callable[[int, int], None]
    ) -> tuple[Learned, dict[str, EpisodeScore]]:
        """Learn from a recording's first part; compare on its second part.

        Raises TrainingError if the recording is of another codec or of other resolutions.
        """
        if (recording.codec, recording.resolutions) != (self.codec, self.resolutions):
            raise TrainingError(
                f"the recording is of {recording.codec} at the resolutions "
                f"{', '.join(map(str, recording.resolutions))}: make one of {self.codec} anew"
            )
        costs = IterationCosts.over(self.link, recording.draft, recording.vocabulary)
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
                name: round(score.tokens_per_s, 3) for name, score in compared.items()
            },
        }
        return replace(learned, trained_on=about), compared


DRAFT, TARGET = "dragon-draft", "dragon-small"


def controller(
    *,
    out: Annotated[Path, option("Where its two files go.", kind="FILE")],
    draft: Annotated[
        str, option("Draft model: bundled name, directory or hub id.", default=DRAFT)
    ] = DRAFT,
    target: Annotated[str, option("Target model, of the same tokenizer.", default=TARGET)] = TARGET,
    corpus: Annotated[
        Path | None,
        option("Questions, or text to be continued; else the sample questions.", kind="PATH"),
    ] = None,
    trace: Annotated[
        Path | None,
        option("Recorded answers, which are made if it is missing, else used.", kind="FILE"),
    ] = None,
    plan: ControllerPlan = ControllerPlan(),
) -> None:
    """Train a controller by Double DQN, and compare it with every fixed action.

    The comparison is on held-out answers and courses of the uplink.
    """
    if trace is not None and trace.exists():
        recording = PairRecording.load(trace)
    else:
        with messages.status("loading the models"):
            pair = ModelPair.load(draft, target)
        model = pair.target
        prompts = bundled_prompts(model) if corpus is None else corpus_prompts(model, corpus)
        with counting("recording") as progress:
            recording = plan.record(
                pair, Tasks(prompts, plan.temperatures, plan.max_tokens), progress
            )
        if trace is not None:
            recording.save(trace)
    with counting("learning") as progress:
        learned, compared = plan.train(recording, progress)
    _print(compared)
    say("saved as {} and {}".format(*save_controller(learned, out)))


def _print(compared: dict[str, EpisodeScore]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("controller")
    table.add_column("reward", justify="right")
    table.add_column("tokens/s", justify="right")
    for name, score in compared.items():
        table.add_row(name, f"{score.mean_reward:.2f}", f"{score.tokens_per_s:.2f}")
    output.print(table)
