"""Both sides' real distributions at every token of the sample questions' answers.

Both run in this process, in lockstep, on text drawn from the target distribution at temperature 1
(SPEC 1), so that positions are as likely to be certain or uncertain as in an answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonrt import bundled
from dragonrt.distributions import Codec, Distribution
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.sampling.rules import Candidate, Rule, expected_acceptance_algorithm1, side_weights
from dragonrt.side import SIDES, Side
from scripts.lab.model_sides import LoadedSide, document_reader


@dataclass(frozen=True, slots=True)
class AnswerPosition:
    """Both sides' distributions, float32 [V], before token `step` of an answer.

    `weights` are η, the device's first.
    """

    question: int
    step: int
    device: NDArray[np.float32]
    cloud: NDArray[np.float32]
    weights: tuple[float, float]

    def sent(self, rule: Rule, code: Codec) -> "SentPosition":
        """Return the distributions as they cross: after sampler and codec."""
        said = {"device": self.device, "cloud": self.cloud}
        p = {side: code.quantize(rule.shape(said[side])).distribution for side in SIDES}
        return SentPosition(p, self.weights)


@dataclass(frozen=True, slots=True)
class SentPosition:
    """Both sides' distributions of one position, as they cross, and η, the device's first."""

    p: dict[Side, Distribution]
    weights: tuple[float, float]

    def accepted(self, rule: Rule, step: int) -> tuple[bool, bool]:
        """Return whether the device's and the cloud's draft of that step become the target."""
        device, cloud = (Candidate(rule.draft(side, step, p), p) for side, p in self.p.items())
        target = rule.target(step, device, cloud, self.weights)
        return device.token == target, cloud.token == target

    def expected_algorithm1(self, side: Side, gamma: float = 0.5) -> float:
        """Return α of that side (DRAGON Eq. 5); `gamma` is how often its own draft is taken."""
        own, other = SIDES.index(side), SIDES[1 - SIDES.index(side)]
        return expected_acceptance_algorithm1(self.p[side], self.p[other], self.weights[own], gamma)


def positions(model: str, questions: int, tokens: int, seed: int) -> Iterator[AnswerPosition]:
    """Yield every position of the first sample questions' answers, `tokens` each at most.

    Both sides have that model, and their sample documents.
    """
    sides = LoadedSide.both(model)
    random = np.random.Generator(np.random.Philox(seed))
    stops = sides[0].model.stop_tokens
    for number, question in enumerate(bundled.questions()[:questions]):
        readers = [
            document_reader(side, Question(prompt=question.text, max_tokens=tokens))
            for side in sides
        ]
        line = TokenPrefix(start_hash(0))
        while len(line) < tokens and set(stops).isdisjoint(line.tokens):
            device, cloud = (
                reader.read(line.tokens, line.hashes, len(line))[0] for reader in readers
            )
            weights = side_weights(device.relevance, cloud.relevance)
            yield AnswerPosition(number, len(line), device.p, cloud.p, weights)
            target = weights[0] * device.p.astype(np.float64) + weights[1] * cloud.p
            line.append(int(random.choice(target.size, p=target / target.sum())))
