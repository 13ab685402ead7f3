"""Real models in virtual time: their numbers are computed, their decoding delay is only charged.

A forward takes `decode_s` virtual seconds, however many rows and tokens it has; retrieval takes
none. So both sides' real distributions, and with them the real acceptance, meet any decoding speed
and any link, repeatably. Used inside `dragonrt.simulation.loop.run`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from dragonrt.distributions.codec import codec
from dragonrt.language.document import DocumentKV
from dragonrt.language.model import LanguageModel
from dragonrt.language.relevance import aggregate_locally
from dragonrt.runtime.draft import Line
from dragonrt.runtime.drafter import Prediction, PreemptedError, quantize
from dragonrt.runtime.plan import Plan
from dragonrt.side import Side

T = TypeVar("T")


class PacedWorker:
    """Runs jobs at once and charges `seconds` of virtual time for each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def run(self, job: Callable[[], T]) -> T:
        """The result of `job()`, once its time has passed."""
        await asyncio.sleep(self._seconds)
        return job()


class PacedDrafter:
    """Implements Drafter over the rows of `documents`, weighed by `relevances`."""

    def __init__(
        self,
        side: Side,
        model: LanguageModel,
        documents: Sequence[DocumentKV],
        relevances: Sequence[float],
        question: Sequence[int],
        plan: Plan,
        decode_s: float,
    ) -> None:
        self._side = side
        self._relevances = list(relevances)
        self._rule = plan.aggregation_rule()
        self._codec = codec(plan.codec, model.vocabulary)
        self._decode_s = decode_s
        self._sequence = model.sequence(documents, len(question) + plan.max_tokens)
        self._prompt = self._sequence.extend(question)
        self._prompt_length = self._sequence.length
        self._fed: list[int] = []
        self._forward: asyncio.Future[None] | None = None

    def preempt(self) -> None:
        if self._forward is not None and not self._forward.done():
            self._forward.set_exception(PreemptedError())

    async def predict(self, line: Line, first: int, last: int) -> list[Prediction]:
        loop = asyncio.get_running_loop()
        self._forward = loop.create_future()
        timer = loop.call_later(self._decode_s, _finish, self._forward)
        try:
            await self._forward
        finally:
            timer.cancel()
            self._forward = None
        rows = self._rows(line.tokens[:last], first)
        share = self._decode_s / (last + 1 - first)
        return [self._predicted(each, step, share) for step, each in enumerate(rows, start=first)]

    def _rows(self, tokens: list[int], first: int) -> list[Tensor]:
        """Log-probabilities after the prefixes of `tokens` from length `first` on."""
        keep = 0
        while keep < min(len(self._fed), first - 1) and self._fed[keep] == tokens[keep]:
            keep += 1
        self._sequence.truncate(self._prompt_length + keep)
        self._fed = tokens
        if not tokens:
            return [self._prompt]
        after = self._sequence.extend_all(tokens[keep:])
        known = [] if first else [self._prompt]
        return known + [
            after[:, length - keep - 1] for length in range(max(first, 1), len(tokens) + 1)
        ]

    def _predicted(self, rows: Tensor, step: int, share_s: float) -> Prediction:
        p, relevance = aggregate_locally(rows, self._relevances)
        token, distribution, payload = quantize(p, self._side, step, self._rule, self._codec)
        return Prediction(token, distribution, payload, relevance, 0, share_s)


def _finish(forward: "asyncio.Future[None]") -> None:
    if not forward.done():
        forward.set_result(None)
