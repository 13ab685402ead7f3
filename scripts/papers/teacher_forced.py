"""What both sides' real models say at every token of the sample questions' answers.

Both models run in this process, in lockstep. The text they read is drawn from the target
distribution itself at temperature 1 (SPEC section 1), so that positions are as likely to be
certain or uncertain as they are in an answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonrt import bundled
from dragonrt.backends.backend import Preemption
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.sampling.aggregation import side_weights
from scripts.papers.model_sides import document_reader
from scripts.papers.sample_sides import LoadedSide, sample_settings


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


@dataclass(frozen=True, slots=True)
class BothSides:
    """Both sides of one bundled model with the sample documents."""

    device: LoadedSide
    cloud: LoadedSide

    @classmethod
    def load(cls, model: str) -> "BothSides":
        """Load the model, and index the sample documents of both sides where that was not done."""
        device = LoadedSide.load(sample_settings("device", model))
        return cls(device, LoadedSide.opened(sample_settings("cloud", model), device.model))

    def positions(self, questions: int, tokens: int, seed: int) -> Iterator[AnswerPosition]:
        """Every position of the answers to the first sample questions, `tokens` each at most."""
        random = np.random.Generator(np.random.Philox(seed))
        stops = self.device.model.stop_tokens
        for number, question in enumerate(bundled.questions()[:questions]):
            readers = [
                document_reader(side, Question(prompt=question.text, max_tokens=tokens))
                for side in (self.device, self.cloud)
            ]
            line = TokenPrefix(start_hash(0))
            while len(line) < tokens and set(stops).isdisjoint(line.tokens):
                device, cloud = (
                    reader.read(line.tokens, line.hashes, len(line), Preemption())[0]
                    for reader in readers
                )
                weights = side_weights(device.relevance, cloud.relevance)
                yield AnswerPosition(number, len(line), device.p, cloud.p, weights)
                target = weights[0] * device.p.astype(np.float64) + weights[1] * cloud.p
                line.append(int(random.choice(target.size, p=target / target.sum())))
