"""What workers and a draft model say at every token of a text that they wrote together (SPEC 3).

As in SPECFED, section V: federated inference without compression, each worker's logits divided by
the temperature, gives the text and, at each of its tokens, the distributions that compression is
then measured on. All models run in this process, in lockstep, without documents. The texts go on
from sample questions and from the beginnings of sample documents, in turn.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonrt.experiments.prompts import prompts
from dragonrt.language.model import LanguageModel
from dragonrt.sampling.samplers import Sampler

WORKERS = ("dragon-small", "dragon-opt")
DRAFT = "dragon-draft"
WEIGHTS = (0.5, 0.5)


@dataclass(frozen=True, slots=True)
class Position:
    """The distributions before token `step` of a text, float64 [V], the temperature applied."""

    text: int
    step: int
    workers: tuple[NDArray[np.float64], ...]
    draft: NDArray[np.float64]


class _Reader:
    """One model that reads a text."""

    def __init__(self, model: LanguageModel, prompt: str, capacity: int) -> None:
        tokens = model.encode(prompt)
        nothing = model.document_kv(())
        self._sequence = model.sequence([nothing], len(tokens) + capacity)
        self._rows = self._sequence.extend(tokens)

    def next(self, sampler: Sampler) -> NDArray[np.float64]:
        """What comes next, the sampler applied."""
        return sampler.dense(self._rows[0].exp().numpy(force=True))

    def read(self, token: int) -> None:
        self._rows = self._sequence.extend([token])


@dataclass(frozen=True, slots=True)
class Federation:
    """The workers' models and the draft model."""

    workers: tuple[LanguageModel, ...]
    draft: LanguageModel

    @classmethod
    def load(cls) -> "Federation":
        """The bundled models."""
        return cls(tuple(map(LanguageModel.load, WORKERS)), LanguageModel.load(DRAFT))

    def positions(
        self, temperature: float, texts: int, tokens: int, seed: int
    ) -> Iterator[Position]:
        """Every position of so many texts at this temperature, `tokens` each at most."""
        random = np.random.Generator(np.random.Philox(seed))
        sampler = Sampler(temperature)
        for number, prompt in enumerate(prompts(self.draft.prompt, texts)):
            models = (*self.workers, self.draft)
            readers = [_Reader(model, prompt, tokens) for model in models]
            for step in range(tokens):
                *workers, draft = (reader.next(sampler) for reader in readers)
                yield Position(number, step, tuple(workers), draft)
                target = np.average(workers, axis=0, weights=WEIGHTS)
                token = int(random.choice(target.size, p=target / target.sum()))
                if token in self.draft.stop_tokens:
                    break
                for reader in readers:
                    reader.read(token)
