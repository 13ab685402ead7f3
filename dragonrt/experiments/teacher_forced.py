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
from dragonrt.errors import DragonError
from dragonrt.experiments.device_side import DeviceSide, sample_settings
from dragonrt.language.relevance import aggregate_locally
from dragonrt.language.sequence import Sequence
from dragonrt.sampling.aggregation import side_weights
from dragonrt.side import Side

DOCUMENTS = 2
RELEVANCE_TEMPERATURE = 0.05
"""As a user's answers have them by default."""


@dataclass(frozen=True, slots=True)
class Position:
    """Both sides' distributions, float32 [V], before token `step` of an answer.

    `weights` are η, the device's first.
    """

    question: int
    step: int
    device: NDArray[np.float32]
    cloud: NDArray[np.float32]
    weights: tuple[float, float]


class _Reader:
    """One side that reads an answer: its rows, and what they say of the next token."""

    def __init__(self, side: DeviceSide, question: str, capacity: int) -> None:
        model, library = side.model, side.library
        if library is None:
            raise DragonError("the sample documents are missing")
        hits = library.find(question, DOCUMENTS)
        self._relevances = [hit.score / RELEVANCE_TEMPERATURE for hit in hits]
        prompt = model.encode(model.prompt.question_text((), question))
        documents = [library.document_kv(model, hit.chunk) for hit in hits]
        self._sequence: Sequence = model.sequence(documents, len(prompt) + capacity)
        self._rows = self._sequence.extend(prompt)

    def next(self) -> tuple[NDArray[np.float32], float]:
        """p_s and h̃_s."""
        return aggregate_locally(self._rows, self._relevances)

    def read(self, token: int) -> None:
        self._rows = self._sequence.extend([token])


@dataclass(frozen=True, slots=True)
class Reading:
    """Both sides of one bundled model with the sample documents."""

    device: DeviceSide
    cloud: DeviceSide

    @classmethod
    def load(cls, model: str) -> "Reading":
        """Load the model, and index the sample documents of both sides where that was not done."""
        sides: list[Side] = ["device", "cloud"]
        device, cloud = (DeviceSide.load(sample_settings(side, model)) for side in sides)
        return cls(device, cloud)

    def positions(self, questions: int, tokens: int, seed: int) -> Iterator[Position]:
        """Every position of the answers to the first sample questions, `tokens` each at most."""
        random = np.random.Generator(np.random.Philox(seed))
        stops = self.device.model.stop_tokens
        for number, question in enumerate(bundled.questions()[:questions]):
            readers = [_Reader(side, question.text, tokens) for side in (self.device, self.cloud)]
            for step in range(tokens):
                (device, h_device), (cloud, h_cloud) = (reader.next() for reader in readers)
                weights = side_weights(h_device, h_cloud)
                yield Position(number, step, device, cloud, weights)
                target = weights[0] * device.astype(np.float64) + weights[1] * cloud
                token = int(random.choice(target.size, p=target / target.sum()))
                if token in stops:
                    break
                for reader in readers:
                    reader.read(token)
