"""Episodes of a controller over recorded texts: a target's tokens, and a draft's probabilities.

Speculative decoding gives texts of the target's distribution whatever the actions are (QSV Prop.
1). So a recorded text can be used as the answer of every episode: a drafted token and the text's
token y are the same with probability min(1, q̂(y)/p(y)), for Pr[drafted and accepted y] is
min(q̂(y), p(y)) and Pr[y] is p(y). No model runs in an episode, at any length and resolution. Time
is that of QSV Eq. 9, with the bits of frames and a round trip besides.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dragonrt.control.trained import Action, Controller, ControlState, Static
from dragonrt.errors import TrainingError
from dragonrt.link.models import MarkovChannel, MarkovRates
from dragonrt.link.profile import LinkProfile

CODEC, LINK = "qs:100", "nb-iot-markov"
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10)
RESOLUTIONS = (2, 3, 5, 10, 25, 50, 100)
"""What the bundled controllers were trained for, and chose among."""

_EPISODE_STREAM = 1  # keeps an episode's numbers apart from other uses of its seed


def forwards_s(draft: str) -> tuple[float, float]:
    """Return the seconds of a drafted token and a verification: smollm2's on one core, or QSV's."""
    return (0.0038, 0.0236) if draft == "smollm2-draft" else (0.010, 0.050)


@dataclass(frozen=True, slots=True)
class IterationCosts:
    """The times and rates that decide how long an iteration (a block) takes, in s, bit and bit/s.

    `draft_s` is per drafted token, `target_s` per verification; `round_trip_s` is the link's,
    without the time that bits take. 10 and 50 ms are the order of a model of 125 M parameters on an
    edge GPU and one of 13 B on a server's, the pair of QSV section V.

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
        """Return the costs with draft model `draft` over link `name`, whose uplink is Markov.

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


def iteration_latency(costs: IterationCosts, length: int, bits: float, up_rate: float) -> float:
    """Return T = L T_slm + L (log2 V + b) / R_up + T_llm + log2(V (L + 1)) / R_down, in seconds.

    L is `length`, and b, `bits`, the mean bits of a token's distribution. Rates are in bit/s.
    Propagation delay and framing are not part of the model (SPEC 2; QSV Eq. 7 - 9).
    """
    up_bits = length * (math.log2(costs.vocabulary) + bits)
    down_bits = math.log2(costs.vocabulary * (length + 1))
    drafting = length * costs.draft_s
    return drafting + up_bits / up_rate + costs.target_s + down_bits / costs.down_rate


class Course:
    """The simulated time, uplink and controller state along one answer; `seed` draws the uplink."""

    def __init__(self, costs: IterationCosts, seed: int) -> None:
        self._costs = costs
        self._channel = MarkovChannel(costs.up, seed)
        self._now_s = 0.0
        self._confidences: list[float] = []
        self._accepted = self._drafted = 0

    def state(self, next_confidence: float) -> ControlState:
        """Return the state that a controller is given before the next block."""
        rate = self._channel.rate_at(self._now_s)
        return ControlState(
            tuple(self._confidences), next_confidence, rate, self._accepted, self._drafted
        )

    def iteration(
        self, drafted: int, bits: float, accepted: int, confidences: Sequence[float]
    ) -> float:
        """Account for one block and return its time in seconds.

        `bits` are those of the block's distributions and tokens, without its frame; `confidences`,
        of the block's new tokens, become part of the controller's state.
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
class RecordedText:
    """One text of N tokens, with its probabilities and bits at R resolutions.

    `p` float64 [N]: each token's probability in the target's distribution, after the sampler;
    `confidence` float64 [N]: the same in the draft's; `likeliest` float64 [N]: the draft's largest
    probability at each place, before the sampler; `q` float64 [N, R]: the token's probability as
    each resolution sends it; `bits` int64 [N, R]: those of the distribution and of a token drafted
    from it.
    """

    p: NDArray[np.float64]
    confidence: NDArray[np.float64]
    likeliest: NDArray[np.float64]
    q: NDArray[np.float64]
    bits: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EpisodeScore:
    """Totals over several episodes: new tokens, seconds, and iterations (blocks)."""

    tokens: int
    seconds: float
    iterations: int


@dataclass(frozen=True, slots=True)
class RecordedEpisodes:
    """Episodes over texts recorded at `resolutions`; a seed chooses the text and the uplink.

    Tokens drafted behind a rejected one count the bits of the text's own tokens there, because the
    distributions that they were drafted from are not recorded.
    """

    texts: Sequence[RecordedText]
    resolutions: Sequence[int]
    costs: IterationCosts

    def score(self, controller: Controller, seeds: Sequence[int]) -> EpisodeScore:
        """Return the totals of the episodes of `seeds`, in which `controller` chooses blocks."""
        tokens, seconds, iterations = 0, 0.0, 0
        for seed in seeds:
            for new, took_s in self._episode(controller, seed):
                tokens, seconds, iterations = tokens + new, seconds + took_s, iterations + 1
        return EpisodeScore(tokens, seconds, iterations)

    def best_fixed(self, lengths: Sequence[int], seeds: Sequence[int]) -> Action:
        """Return the action with the highest throughput if all blocks have it; ties: the first."""

        def tokens_per_s(action: Action) -> float:
            score = self.score(Static(action), seeds)
            return score.tokens / score.seconds

        return max((Action(*each) for each in product(lengths, self.resolutions)), key=tokens_per_s)

    def _episode(self, controller: Controller, seed: int) -> list[tuple[int, float]]:
        """Return the new tokens and the seconds of each block of an episode."""
        chance = np.random.default_rng((seed, _EPISODE_STREAM))
        text = self.texts[int(chance.integers(len(self.texts)))]
        course, size, start = Course(self.costs, seed), len(text.p), 0
        longest = max(len(each.p) for each in self.texts)
        blocks = list[tuple[int, float]]()
        while start < size:
            action = controller.choose(course.state(float(text.likeliest[start])))
            column = list(self.resolutions).index(action.resolution)
            length = min(action.length, longest - start)
            here = slice(start, start + length)
            stands = np.minimum(1.0, text.q[here, column] / text.p[here])
            refused = np.flatnonzero(chance.random(len(stands)) >= stands)
            accepted = int(refused[0]) if refused.size else len(stands)
            whole = accepted == size - start  # to its last token: nothing was drafted behind it
            drafted = accepted if whole else length
            at = np.minimum(np.arange(start, start + drafted), size - 1)
            shown = text.confidence[start : start + min(accepted + 1, len(stands))].tolist()
            bits = float(text.bits[at, column].sum())
            seconds = course.iteration(drafted, bits, accepted, shown)
            blocks.append((accepted if whole else accepted + 1, seconds))
            start += blocks[-1][0]
        return blocks
