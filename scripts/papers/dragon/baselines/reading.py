"""One side of a baseline: its model reads documents and a question, then decodes by itself.

Context aggregation writes all documents one behind another in front of the question, each in the
form the model knows, the most relevant one last, next to the question. Output aggregation gives
each document a row.
"""

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.backend import Document
from dragonrt.backends.mixture import Weighing
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.distributions.distribution import Distribution
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.node.model_thread import JobThread
from dragonrt.node.process.local_side import fitting_prompt
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import Algorithm1
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from retrieval import Chunk, Hit
from scripts.lab.model_sides import PacedWorker

Probabilities = NDArray[np.float32]
RetrievedText = tuple[str, str, float]
"""Title, text and score of a document."""

RELEVANCE_TEMPERATURE = 0.05
"""What scores are divided by, as in an ordinary answer."""

START = start_hash(0)
"""The hash of the empty answer; a baseline has one answer to a reader."""

SMALLEST = 1e-30
"""A probability for the logarithm of what underflowed."""


Runner = JobThread | PacedWorker
"""Runs a job off the loop, or charges virtual time for it."""


class KnownDocuments(Protocol):
    """What a side retrieves from: a library, or what stands for one."""

    def find(self, question: str, k: int) -> list[Hit]:
        """Return the `k` best chunks for a question."""

    def document_kv(self, chunk: Chunk) -> Document:
        """Return the chunk's keys and values."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question and how it is to be answered: exactly `tokens` tokens."""

    question: str
    documents: int
    seed: int
    temperature: float
    tokens: int


@dataclass(frozen=True, slots=True)
class BaselineSide:
    """A model with its documents. `thread` runs the model, `librarian` the retrieval."""

    side: Side
    model: LanguageModel
    library: KnownDocuments
    thread: Runner
    librarian: Runner

    async def find(self, asked: Asked) -> list[Hit]:
        """Return the most relevant documents of this side, the best first."""
        return await self.librarian.call(lambda: self.library.find(asked.question, asked.documents))

    async def texts(self, asked: Asked) -> list[RetrievedText]:
        found = await self.find(asked)
        return [(hit.chunk.title, hit.chunk.text, hit.score) for hit in found]

    async def kv(self, hits: Sequence[Hit]) -> list[Document]:
        """Return the stored KV of each document."""
        return await self.librarian.call(
            lambda: [self.library.document_kv(hit.chunk) for hit in hits]
        )

    async def read_context(self, found: Sequence[RetrievedText], asked: Asked) -> PrefixCache:
        """Prefill all documents and the question as one text, with room for the answer."""

        def read() -> PrefixCache:
            model = self.model
            room = model.context_length - asked.tokens
            prompt = fitting_prompt(model, asked.question, (), room)
            documents = [
                model.encode(model.prompt.document_text(title, text))
                for title, text, _ in sorted(found, key=lambda each: -each[2])
            ]
            text = [*fitting(documents, room - len(prompt))[0], *prompt]
            sequence = model.rows([model.document_kv(())], len(text) + asked.tokens)
            return PrefixCache.with_prompt_read(sequence, text, START)

        return await self.thread.call(read)

    async def read_rows(
        self, stored: Sequence[Document], scores: Sequence[float], asked: Asked
    ) -> PrefixCache:
        """Prefill the question once behind each document's KV, with room for its answer."""

        def read() -> PrefixCache:
            model = self.model
            longest = max(document.length for document in stored)
            room = model.context_length - longest - asked.tokens
            prompt = fitting_prompt(model, asked.question, (), room)
            sequence = model.rows(stored, len(prompt) + asked.tokens)
            weighing = Weighing(np.array(scores) / RELEVANCE_TEMPERATURE)
            return PrefixCache.with_prompt_read(sequence, prompt, START, weighing)

        return await self.thread.call(read)

    async def decode(
        self, reader: PrefixCache, asked: Asked
    ) -> AsyncIterator[tuple[int, Probabilities]]:
        """Yield the answer's tokens, each with the distribution [V] it was drawn from.

        That is the one before the temperature. A side's noise is its own: sequences of two sides
        are independent (Algorithm 1's drafts).
        """
        rule = Algorithm1(Noise(asked.seed), Sampler(asked.temperature))
        prefix = TokenPrefix(START)

        def draw() -> tuple[int, Probabilities]:
            step = len(prefix)
            p = reader.read(prefix.tokens, prefix.hashes, step)[0].p
            token = rule.draft(self.side, step, Distribution.from_dense(rule.shape(p)))
            prefix.append(token)
            return token, p

        yield draw()  # what follows the question is known
        for _ in range(1, asked.tokens):
            yield await self.thread.call(draw)

    async def distributions(self, cache: PrefixCache, tokens: Sequence[int]) -> list[Probabilities]:
        """Return the distribution [V] before each of these tokens, in one forward."""

        def run() -> list[Probabilities]:
            prefix = TokenPrefix(START, tokens)
            after = cache.read(prefix.tokens, prefix.hashes, 0)
            return [each.p for each in after[: len(tokens)]]

        return await self.thread.call(run)


def log_probability(tokens: Sequence[int], p: Sequence[Probabilities]) -> float:
    """Return that of a sequence, from the distribution before each of its tokens."""
    given = zip(tokens, p, strict=True)
    return sum(math.log(max(float(each[token]), SMALLEST)) for token, each in given)


def packed(what: str, tokens: Sequence[int], p: Sequence[Probabilities]) -> bytes:
    """Return the distributions along a sequence, or for `scores` its log-probability, as bytes."""
    score = np.float64(log_probability(tokens, p))
    return score.tobytes() if what == "scores" else np.concatenate(p).tobytes()


def scored(along: bytes, tokens: Sequence[int]) -> float:
    """Return the log-probability of a sequence from what `packed` gave."""
    if len(along) == 8:
        return float(np.frombuffer(along, np.float64).item())
    return log_probability(tokens, list(np.frombuffer(along, np.float32).reshape(len(tokens), -1)))


def fitting(documents: Sequence[list[int]], room: int) -> tuple[list[int], int]:
    """Return the documents one behind another, best last, and how many of them fit."""
    chosen: list[list[int]] = []
    for document in documents:
        room -= len(document)
        if room < 0:
            break
        chosen.append(document)
    return [token for document in reversed(chosen) for token in document], len(chosen)
