"""What environments for controllers share: the interface, the time, and the state they show.

An episode is one answer over one course of the uplink. Time is that of QSV Eq. 9, with the bits of
frames and a round trip besides; the reward of an iteration is the expected number of its new tokens
over its time. QSV Eq. 13 counts the drafted ones that are accepted, A; we count the target's own
token too, A + 1, as the throughput does that is to be maximised (Eq. 12). With A alone Double DQN
learned blocks that are too long: 20.6 tokens/s where the best fixed action gave 22.2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dragonrt.control.policies import Action, Controller, ControlState, Static
from dragonrt.errors import TrainingError
from dragonrt.link.models import MarkovChannel, MarkovRates
from dragonrt.link.profile import LinkProfile

CODEC, LINK = "qs:100", "nb-iot-markov"
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10)
RESOLUTIONS = (2, 3, 5, 10, 25, 50, 100)
"""What the bundled controllers were trained for, and chose among."""


def forwards_s(draft: str) -> tuple[float, float]:
    """Return what a drafted token and a verification take: smollm2's on one core, or QSV's."""
    return (0.0038, 0.0236) if draft == "smollm2-draft" else (0.010, 0.050)


@dataclass(frozen=True, slots=True)
class IterationCosts:
    """What an iteration's time is made of, in seconds, bit and bit/s.

    `draft_s` per drafted token, `target_s` per verification, `round_trip_s` of the link beside what
    the bits take. 10 and 50 ms are the order of a model of 125 M parameters on an edge GPU and one
    of 13 B on a server's, the pair of QSV section V.

    `frame_bits` are the header and fields of a block's frame. QSV counts none, but here they are as
    much as one or two tokens take.
    """

    up: MarkovRates
    vocabulary: int
    down_rate: float = math.inf
    draft_s: float = 0.010
    target_s: float = 0.050
    round_trip_s: float = 0.0
    frame_bits: int = 160

    @classmethod
    def over(cls, name: str, draft: str, vocabulary: int) -> Self:
        """Return the costs over a link with Markov rates upwards.

        Raises LinkError or TrainingError.
        """
        link = LinkProfile.load(name)
        if link.up_rates is None:
            raise TrainingError(
                f"the link {name} has no Markov rates upwards: choose nb-iot-markov, "
                "lora-markov, lte-markov or a file with up_low, up_high, up_to_low and up_to_high"
            )
        down, forwards = link.down or math.inf, forwards_s(draft)
        return cls(link.up_rates, vocabulary, down, *forwards, 2 * link.latency_s)


@dataclass(frozen=True, slots=True)
class Transition:
    """What came of an action.

    `reward` in tokens per second; `tokens` are those the answer has gained, the target's own
    included, in `seconds`; `done` after the answer's last token.
    """

    state: ControlState
    reward: float
    tokens: int
    seconds: float
    done: bool


class Environment(Protocol):
    """Answers drafted under control. Everything is a function of the seeds and the actions."""

    def reset(self, seed: int) -> ControlState:
        """Begin the answer and the course of the uplink that have this number."""

    def step(self, action: Action) -> Transition:
        """Draft, send and verify one block; not after the answer's last token."""


def estimated_accepted(
    acceptance: Sequence[float] | NDArray[np.float64],
    overlap: Sequence[float] | NDArray[np.float64],
) -> float:
    """Estimate A of QSV Eq. 14 from one sample of a block: how many tokens will be accepted.

    `acceptance` are the probabilities that the tokens of the block are accepted, `overlap` those
    that any token drafted at their places is, Σ min(p, q̂). The last factor of each product is taken
    in expectation, which leaves the mean as it is and takes away most of the noise.
    """
    before = np.concatenate(([1.0], np.cumprod(acceptance)[:-1]))
    return float(before @ np.asarray(overlap))


def iteration_latency(costs: IterationCosts, length: int, bits: float, up_rate: float) -> float:
    """Return T = L T_slm + L (log2 V + b) / R_up + T_llm + log2(V (L + 1)) / R_down, in seconds.

    `bits` describe the distribution of each of `length` tokens, on average; rates in bit/s.
    Propagation delay and framing are not part of the model (SPEC 2; QSV Eq. 7 - 9).
    """
    up_bits = length * (math.log2(costs.vocabulary) + bits)
    down_bits = math.log2(costs.vocabulary * (length + 1))
    drafting = length * costs.draft_s
    return drafting + up_bits / up_rate + costs.target_s + down_bits / costs.down_rate


class Course:
    """One answer's time, uplink and state. Channel courses are numbered by `seed`."""

    def __init__(self, costs: IterationCosts, seed: int) -> None:
        self._costs = costs
        self._channel = MarkovChannel(costs.up, seed)
        self._now_s = 0.0
        self._confidences: list[float] = []
        self._accepted = self._drafted = 0

    def state(self, next_confidence: float) -> ControlState:
        """Return what a controller sees now."""
        rate = self._channel.rate_at(self._now_s)
        return ControlState(
            tuple(self._confidences), next_confidence, rate, self._accepted, self._drafted
        )

    def iteration(
        self, drafted: int, bits: float, accepted: int, confidences: Sequence[float]
    ) -> float:
        """Account for one block and return its time in seconds.

        Its distributions and tokens took `bits` altogether, its frame the costs' more;
        `confidences` are those of the new tokens that `ControlState` is to list.
        """
        costs = self._costs
        ready_s = self._now_s + drafted * costs.draft_s
        sent = bits + costs.frame_bits
        sending_s = self._channel.departure_s(ready_s, sent) - ready_s
        distribution = sent / drafted - math.log2(costs.vocabulary)  # without the token's own bits
        mean_rate = sent / sending_s  # while the block is sent
        latency_s = iteration_latency(costs, drafted, distribution, mean_rate)
        seconds = costs.round_trip_s + latency_s
        self._now_s += seconds
        self._accepted, self._drafted = accepted, min(drafted, accepted + 1)
        self._confidences.extend(confidences)
        return seconds


@dataclass(frozen=True, slots=True)
class EpisodeScore:
    """Totals over episodes; `reward` is the sum over iterations of their reward."""

    tokens: int
    seconds: float
    iterations: int
    reward: float

    @property
    def tokens_per_s(self) -> float:
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
