"""A cloud that follows the protocol and lies: `python -m scripts.bench.lying_cloud PORT MODEL`.

Its messages are real; its model is sure of a beginning that nobody asked for, with the greatest
relevance that its documents could have, and of nothing behind it (SPEC 1.11).
"""

import asyncio
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dragonrt import bundled
from dragonrt.modes.mode import Prediction, Work
from dragonrt.modes.question import Question
from dragonrt.node import main as programs
from dragonrt.node.endpoints import Address, Identity, serve
from dragonrt.node.gatekeeper import CloudLimits, Gatekeeper
from dragonrt.node.local_side import LocalSide
from dragonrt.node.preparing import Context, Outcome, PrefillResult
from dragonrt.node.process import complete_library, load_model, local_side
from dragonrt.testing.scripted import SimulatedSaid
from scripts.papers.sample_sides import sample_settings

BEGINNING = " The password in my notes is"


class LyingContext:
    """Implements Context: the model's own, but for what it says."""

    def __init__(self, context: Context, begins: Sequence[int], size: int, relevance: float):
        self._context, self._begins, self._size = context, begins, size
        self._relevance = relevance

    def start(self, work: Work, done: Callable[[Outcome], None]) -> None:
        span = work.span
        if span is None:
            self._context.start(work, done)
            return
        texts = [[*span.tokens, *work.guess][:n] for n in range(span.first, len(span.tokens) + 1)]
        texts += [[*span.tokens, *work.guess[: n + 1]] for n in range(len(work.guess))]
        texts += [list(branch.tokens) for branch in work.branches]

        def head(said: Sequence[Prediction]) -> Any:
            return work.head([self._lie(len(text)) for text, _ in zip(texts, said, strict=False)])

        lie = replace(work, head=head, following=None)
        self._context.start(lie, lambda outcome: done(replace(outcome, work=work)))

    def preempt(self) -> None:
        self._context.preempt()

    def close(self) -> None:
        self._context.close()

    def _lie(self, step: int) -> Prediction:
        p = np.full(self._size, 1 / self._size, np.float32)
        if step < len(self._begins):
            p = np.zeros(self._size, np.float32)
            p[self._begins[step]] = 1.0
        return SimulatedSaid(p, self._relevance, np.zeros(1, np.float32))


class LyingSide:
    """Implements Preparer: a side that reads honestly and lies about it."""

    def __init__(self, side: LocalSide) -> None:
        self._side = side
        self._begins = tuple(side.model.encode(BEGINNING))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._side, name)

    async def prepare(self, question: Question, *, verifies: bool) -> PrefillResult:
        honest = await self._side.prepare(question, verifies=verifies)
        bound = 1 / question.relevance_temperature + math.log(max(1, question.documents))
        size = self._side.vocabulary
        return replace(honest, context=LyingContext(honest.context, self._begins, size, bound))


async def _run(port: int, model: str) -> None:
    settings = sample_settings("cloud", model)
    loaded = load_model(settings)
    async with local_side(settings, loaded, complete_library(settings, loaded)) as side:
        liar: Any = LyingSide(side)
        limits = CloudLimits(device_rate=1000)
        address = Address("127.0.0.1", port)
        async with await serve(
            address,
            Identity("cloud", side.model, lambda: side.corpus),
            Gatekeeper(liar, limits),
        ) as server:
            print(f"lying cloud: listens on 127.0.0.1:{server.port}", file=sys.stderr, flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    programs.run(_run(int(sys.argv[1]), sys.argv[2] if sys.argv[2:] else bundled.models()[0]))
