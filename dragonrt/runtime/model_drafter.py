"""A Drafter on a real model: rows of documents, weighed by relevance, in the worker thread."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dragonrt.distributions.codec import Codec
from dragonrt.language.preemption import Preempted, Preemption
from dragonrt.language.relevance import aggregate_locally
from dragonrt.language.sequence import Sequence
from dragonrt.runtime.draft import Line
from dragonrt.runtime.drafter import Prediction, PreemptedError, quantize
from dragonrt.runtime.worker import ModelWorker
from dragonrt.sampling.aggregation import Rule
from dragonrt.sampling.noise import Side

REMEMBERED_WEIGHINGS = 8
"""Weighings kept for prefixes that a rollback may come back to."""

Relevances = NDArray[np.float64]
"""Document relevances [rows], already divided by their temperature."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """The documents' relevances, taken again every `every` tokens (0: never) by `again`.

    They depend on the text alone, never on when they were computed, so rollbacks cannot change
    what is drafted (SPEC section 0).
    """

    initial: Relevances
    every: int = 0
    again: Callable[[list[int]], Relevances] | None = None


class ModelDrafter:
    """Implements Drafter. `sequence` already holds the question, `prompt` the log-probabilities
    [rows, vocabulary] after it, `start` is the prefix hash of the empty answer."""

    def __init__(
        self,
        side: Side,
        worker: ModelWorker,
        sequence: Sequence,
        prompt: Tensor,
        weighing: Weighing,
        rule: Rule,
        codec: Codec,
        start: int,
    ) -> None:
        self._side = side
        self._worker = worker
        self._sequence = sequence
        self._prompt = prompt
        self._prompt_length = sequence.length
        self._weighing = weighing
        self._weighed: dict[int, Relevances] = {}
        self._rule = rule
        self._codec = codec
        self._preemption = Preemption()
        self._hashes = [start]  # of the prefixes that the KV cache holds, and perhaps beyond
        self._clock = asyncio.get_running_loop().time

    def preempt(self) -> None:
        self._preemption.request()

    async def predict(self, line: Line, first: int, last: int) -> list[Prediction]:
        keep = min(self._common(line), last, max(first - 1, 0))
        tokens, hashes = line.tokens[:last], line.hashes[: last + 1]
        self._preemption.clear()
        try:
            return await self._worker.run(lambda: self._predict(tokens, hashes, keep, first))
        except Preempted:
            raise PreemptedError from None

    def _common(self, line: Line) -> int:
        """The length of the longest prefix of the line that the KV cache holds."""
        length = min(self._sequence.length - self._prompt_length, len(line))
        while self._hashes[length] != line.hashes[length]:
            length -= 1
        return length

    def _predict(
        self, tokens: list[int], hashes: list[int], keep: int, first: int
    ) -> list[Prediction]:
        """In the worker thread: cut the cache back, run the forward, quantize and sample."""
        start_s = self._clock()
        self._sequence.truncate(self._prompt_length + keep)
        self._hashes = hashes
        after = {0: self._prompt}
        if len(tokens) > keep:
            block = self._sequence.extend_all(tokens[keep:], self._preemption)
            after.update(enumerate(block.unbind(dim=1), start=keep + 1))
        steps = range(first, len(tokens) + 1)
        decode_s = (self._clock() - start_s) / len(steps)
        return [self._prediction(after[step], tokens, step, decode_s) for step in steps]

    def _prediction(
        self, rows: Tensor, tokens: list[int], step: int, decode_s: float
    ) -> Prediction:
        relevances = self._relevances(tokens, step)
        p, relevance = aggregate_locally(rows, relevances.tolist())
        token, distribution, payload = quantize(p, self._side, step, self._rule, self._codec)
        document = int((rows[:, token].double().numpy(force=True) + relevances).argmax())
        return Prediction(token, distribution, payload, relevance, document, decode_s)

    def _relevances(self, tokens: list[int], step: int) -> Relevances:
        weighing = self._weighing
        length = step - step % weighing.every if weighing.every else 0
        if weighing.again is None or length == 0:
            return weighing.initial
        key = self._hashes[length]
        if key not in self._weighed:
            if len(self._weighed) >= REMEMBERED_WEIGHINGS:
                self._weighed.clear()
            self._weighed[key] = weighing.again(tokens[:length])
        return self._weighed[key]
