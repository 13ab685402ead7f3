"""A Predictor on a real model."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from dragonrt.language.preemption import Preempted, Preemption
from dragonrt.language.reader import Reader
from dragonrt.runtime.draft import Line
from dragonrt.runtime.drafter import PreemptedError
from dragonrt.runtime.predictor import NextToken

T = TypeVar("T")


class Runs(Protocol):
    """What runs the model's jobs one after another; who awaits one may be cancelled."""

    async def run(self, job: Callable[[], T]) -> T: ...


class ModelPredictor:
    """Implements Predictor over the rows of `reader`."""

    def __init__(self, worker: Runs, reader: Reader) -> None:
        self._worker = worker
        self._reader = reader
        self._forward: asyncio.Task[list[NextToken]] | None = None
        self._preemption = Preemption()

    async def predict(self, line: Line, first: int, last: int) -> list[NextToken]:
        tokens, hashes = line.tokens[:last], line.hashes[: last + 1]
        preemption = self._preemption = Preemption()

        def job() -> list[NextToken]:
            preemption.check()
            after = self._reader.read(tokens, hashes, first, preemption)
            return [NextToken(said.p, said.relevance, said.hidden) for said in after]

        forward = self._forward = asyncio.create_task(self._worker.run(job), name="forward")
        try:
            return await forward
        except (Preempted, asyncio.CancelledError):
            task = asyncio.current_task()
            if not preemption.requested or (task is not None and task.cancelling()):
                raise
            raise PreemptedError from None
        finally:
            # Whoever is cancelled here leaves no forward behind; the worker ends it in its turn.
            if not forward.done():
                preemption.request()
                forward.cancel()
            self._forward = None

    def preempt(self) -> None:
        if self._forward is not None:
            self._preemption.request()
            self._forward.cancel()
