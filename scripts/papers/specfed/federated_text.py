"""Distributions of workers and draft model at every token of a federated text (SPEC 3).

As in SPECFED, section V, the text is that of inference without compression, with equal weights and
each worker's logits divided by the temperature. All models run in this process, in lockstep.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.model import LanguageModel
from dragonrt.sampling.samplers import Sampler
from scripts.papers.framework import Settings
from scripts.papers.texts import prompts
from scripts.train.controllers.model_pair import AnswerReader, ModelPair
from scripts.train.controllers.prompt import TextKind

HEAVY = 0.7
"""The weight of one worker among others that share the rest."""


@dataclass(frozen=True, slots=True)
class FederatedPosition:
    """The distributions before token `step` of a text, float64 [V], the temperature applied."""

    kind: TextKind
    text: int
    step: int
    workers: tuple[NDArray[np.float64], ...]
    draft: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Federation:
    """The workers' models and the draft model."""

    workers: tuple[LanguageModel, ...]
    draft: LanguageModel

    @classmethod
    def load(cls, settings: Settings) -> "Federation":
        """Load the figure's models. Raises DragonError where their tokens do not mean the same."""
        found = cls(
            tuple(map(LanguageModel.load, settings.models)), LanguageModel.load(settings.draft)
        )
        for worker in found.workers:
            ModelPair(found.draft, worker)
        return found

    @property
    def weightings(self) -> dict[str, list[float]]:
        """The workers' weights by name: all alike, then each heavy in turn."""
        names = [model.name for model in self.workers]
        places = range(len(names))
        found = [[1 / len(names)] * len(names)]
        if len(names) > 1:
            light = (1 - HEAVY) / (len(names) - 1)
            found += [[HEAVY if one == heavy else light for one in places] for heavy in places]
        told = [map("{} {:.2g}".format, names, weights) for weights in found]
        return {", ".join(each): weights for each, weights in zip(told, found, strict=True)}

    def positions(
        self, temperature: float, texts: int, tokens: int, seed: int
    ) -> Iterator[FederatedPosition]:
        """Yield every position of so many texts at this temperature, `tokens` each at most."""
        random = np.random.Generator(np.random.Philox(seed))
        sampler = Sampler(temperature)
        for number, prompt in enumerate(prompts(self.draft, texts)):
            text: list[int] = []
            readers = [
                AnswerReader(model, prompt.tokens, tokens) for model in (*self.workers, self.draft)
            ]
            while len(text) < tokens and set(prompt.stops).isdisjoint(text):
                *workers, draft = (
                    sampler.dense(reader.after(text, len(text))[0]) for reader in readers
                )
                yield FederatedPosition(prompt.kind, number, len(text), tuple(workers), draft)
                target = np.mean(workers, axis=0)
                text.append(int(random.choice(target.size, p=target / target.sum())))
