"""One side of a baseline: its model reads documents and a question, then decodes by itself.

Context aggregation writes all documents one behind another in front of the question, each in the
form the model knows (`Document: ...` for the bundled models, which saw one at a time in training),
the most relevant one last, next to the question. Output aggregation gives each document a row.
"""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
from torch import Tensor

from dragonrt.distributions.distribution import Distribution
from dragonrt.language.document import DocumentKV
from dragonrt.language.model import LanguageModel
from dragonrt.language.relevance import aggregate_locally
from dragonrt.language.sequence import Sequence as Rows
from dragonrt.runtime.library import Library
from dragonrt.runtime.local_side import fitting_prompt
from dragonrt.sampling.aggregation import Algorithm1
from dragonrt.sampling.noise import Noise, Side
from dragonrt.sampling.samplers import Sampler
from retrieval import Hit

T = TypeVar("T")

RELEVANCE_TEMPERATURE = 0.05
"""What scores are divided by, as in an ordinary answer."""

SMALLEST = 1e-30
"""A probability for the logarithm of what underflowed."""


class Worker(Protocol):
    """Runs a job off the loop, or charges virtual time for it."""

    async def run(self, job: Callable[[], T]) -> T:
        """The result of `job()`."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """A retrieved document: its text and its score."""

    title: str
    text: str
    score: float

    @classmethod
    def of(cls, hit: Hit) -> "Found":
        """What the index found."""
        return cls(hit.chunk.title, hit.chunk.text, hit.score)


@dataclass(slots=True)
class Reading:
    """A question that was read behind documents, and every token since.

    `log_probs` are those after the newest token, `prompt` those after the question, both
    [rows, vocabulary]; `relevances` weigh the rows.
    """

    sequence: Rows
    prompt: Tensor
    relevances: list[float]
    log_probs: Tensor
    prompt_length: int

    @classmethod
    def of(cls, sequence: Rows, prompt: Sequence[int], relevances: list[float]) -> "Reading":
        """The reading after `prompt`, which `sequence` is extended with."""
        log_probs = sequence.extend(prompt)
        return cls(sequence, log_probs, relevances, log_probs, sequence.length)

    @property
    def relevance(self) -> float:
        """h̃, by which the other side weighs this one (SPEC 1)."""
        return float(np.logaddexp.reduce(self.relevances))


@dataclass(frozen=True, slots=True)
class BaselineSide:
    """A model with its documents. `worker` runs the model, `librarian` the retrieval."""

    side: Side
    model: LanguageModel
    library: Library
    worker: Worker
    librarian: Worker

    async def find(self, question: str, documents: int) -> list[Hit]:
        """The most relevant documents of this side, the best first."""
        return await self.librarian.run(lambda: self.library.find(question, documents))

    async def kv(self, hits: Sequence[Hit]) -> list[DocumentKV]:
        """The stored KV of each document."""
        return await self.librarian.run(
            lambda: [self.library.document_kv(self.model, hit.chunk) for hit in hits]
        )

    async def read_context(self, found: Sequence[Found], question: str, tokens: int) -> Reading:
        """Prefill all documents and the question as one text, with room for `tokens` more.

        Documents that do not fit are left out, the least relevant first.
        """

        def read() -> Reading:
            model = self.model
            asked = fitting_prompt(model, question, (), model.context_length - tokens)
            room = model.context_length - tokens - len(asked)
            text = [*concatenated(model, found, room), *asked]
            sequence = model.sequence([model.document_kv(())], len(text) + tokens)
            return Reading.of(sequence, text, [0.0])

        return await self.worker.run(read)

    async def read_rows(
        self, stored: Sequence[DocumentKV], scores: Sequence[float], question: str, tokens: int
    ) -> Reading:
        """Prefill the question once behind each document's KV, with room for `tokens` more."""

        def read() -> Reading:
            model = self.model
            longest = max(document.length for document in stored)
            asked = fitting_prompt(model, question, (), model.context_length - longest - tokens)
            sequence = model.sequence(stored, len(asked) + tokens)
            relevances = [score / RELEVANCE_TEMPERATURE for score in scores]
            return Reading.of(sequence, asked, relevances)

        return await self.worker.run(read)

    async def decode(
        self, reading: Reading, seed: int, temperature: float, tokens: int
    ) -> AsyncIterator[tuple[int, float]]:
        """So many tokens, whatever they are, each with its log-probability.

        A side's noise is its own: sequences of two sides are independent (Algorithm 1's drafts).
        """
        rule = Algorithm1(Noise(seed), Sampler(temperature))

        def draw(step: int) -> tuple[int, float]:
            p, _ = aggregate_locally(reading.log_probs, reading.relevances)
            token = rule.draft(self.side, step, Distribution.from_dense(rule.shape(p)))
            return token, math.log(max(float(p[token]), SMALLEST))

        def following(token: int, step: int) -> tuple[int, float]:
            reading.log_probs = reading.sequence.extend([token])
            return draw(step)

        drawn = draw(0)
        yield drawn
        for step in range(1, tokens):
            drawn = await self.worker.run(partial(following, drawn[0], step))
            yield drawn

    async def score(self, reading: Reading, tokens: Sequence[int]) -> float:
        """The log-probability of these tokens behind the prompt, in one forward."""

        def run() -> float:
            reading.sequence.truncate(reading.prompt_length)
            after = reading.sequence.extend_all(tokens)
            total = 0.0
            for step, token in enumerate(tokens):
                rows = reading.prompt if step == 0 else after[:, step - 1]
                p, _ = aggregate_locally(rows, reading.relevances)
                total += math.log(max(float(p[token]), SMALLEST))
            return total

        return await self.worker.run(run)


def concatenated(model: LanguageModel, found: Sequence[Found], room: int) -> list[int]:
    """The tokens of as many documents as fit into `room`, the most relevant ones, best last."""
    chosen: list[list[int]] = []
    for each in sorted(found, key=lambda one: -one.score):
        tokens = model.encode(model.prompt.document_text(each.title, each.text))
        room -= len(tokens)
        if room < 0:
            break
        chosen.append(tokens)
    return [token for tokens in reversed(chosen) for token in tokens]
