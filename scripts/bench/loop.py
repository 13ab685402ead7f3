"""Whether the event loop stays free: the longest time that one callback held it, in every mode.

Both sides, and all workers, are in this process: models in threads of their own, everything else on
one event loop that measures each of its callbacks.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from contextvars import Context
from functools import partial
from typing import Any, TypeVarTuple

from rich.console import Console

from dragonrt.backends.model import LanguageModel
from dragonrt.backends.reader import Reader
from dragonrt.modes.question import Question
from dragonrt.modes.settings import (
    DragonSettings,
    FederatedSettings,
    Settings,
    SpeculativeSettings,
    SprinterSettings,
)
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.scripted import PrefixVerifier
from scripts.bench.random_models import related_models
from scripts.bench.report import bench_table, print_report
from scripts.papers.arena import Given
from scripts.papers.model_sides import engine, reading_side, text_reader
from scripts.papers.virtual_arena import linked

Ts = TypeVarTuple("Ts")

NOTE = (
    "Longest: the longest callback of the event loop while an answer is made, at both ends of the "
    "link, by the clock, where other threads and programs have their part, and by the processor "
    "time of the loop's own thread. Models have random weights, sharpened to a text's entropy."
)
VOCABULARIES = (8_192, 151_936)
WAYS: dict[str, Settings] = {
    "dragon": DragonSettings(),
    "speculative, coupled": SpeculativeSettings(),
    "speculative, rejection": SpeculativeSettings(rule="rejection", codec="topk:64:renorm"),
    "federated": FederatedSettings(),
    "sprinter": SprinterSettings(),
}
WORKERS = {"federated": 2}
PROMPT = list(range(5, 45))


class MeasuredLoop(asyncio.SelectorEventLoop):
    """An event loop that knows its longest callback: `wall_s` on the clock, `cpu_s` of its thread.

    Tasks' steps, timers and what threads hand over are callbacks, too.
    """

    wall_s = cpu_s = 0.0

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon(self._measured, partial(callback, *args), context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        measured = partial(callback, *args)
        return super().call_soon_threadsafe(self._measured, measured, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return super().call_at(when, self._measured, partial(callback, *args), context=context)

    def _measured(self, callback: Callable[[], object]) -> None:
        wall_s, cpu_s = time.perf_counter(), time.thread_time()
        try:
            callback()
        finally:
            self.wall_s = max(self.wall_s, time.perf_counter() - wall_s)
            self.cpu_s = max(self.cpu_s, time.thread_time() - cpu_s)


def bench_loop(
    *,
    output: Console,
    messages: Console,
    vocabularies: Sequence[int] = VOCABULARIES,
    ways: Sequence[str] = tuple(WAYS),
    tokens: int = 48,
    seed: int = 1,
) -> None:
    """Milliseconds of the longest callback in each mode, beside those of one token."""
    gc.freeze()  # as a process that runs a side does, once it has loaded
    table = bench_table("V", "mode", "longest", "its CPU", "token")
    results: list[dict[str, Any]] = []
    for vocabulary in vocabularies:
        models = related_models(vocabulary, 3, seed)
        for way in ways:
            with messages.status(f"{way} at a vocabulary of {vocabulary:,}"):
                question = Question(seed=seed, sampler=Sampler(0.8), max_tokens=tokens)
                sides = models[: 1 + WORKERS.get(way, 1)]
                with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
                    given, wall_s, cpu_s = runner.run(_answer(way, question, sides))
            token_ms = 1000 * given.seconds / len(given.tokens)
            table.add_row(
                f"{vocabulary:,}",
                way,
                f"{1000 * wall_s:.2f} ms",
                f"{1000 * cpu_s:.2f} ms",
                f"{token_ms:.2f} ms",
            )
            results.append(
                {
                    "vocabulary": vocabulary,
                    "mode": way,
                    "longest_callback_ms": round(1000 * wall_s, 4),
                    "longest_callback_cpu_ms": round(1000 * cpu_s, 4),
                    "ms_per_token": round(token_ms, 4),
                    "tokens": len(given.tokens),
                }
            )
    print_report(output, "loop", table, results, seed=seed, note=NOTE)


async def _answer(
    way: str, question: Question, models: Sequence[LanguageModel]
) -> tuple[Given, float, float]:
    """The second of two answers, for the first one loads what is loaded late; and its longest."""
    async with AsyncExitStack() as stack:
        sides = []
        for number, model in enumerate(models):
            reader = text_reader(model, PROMPT, question.seed, Reader)
            side = reading_side("cloud" if number else "device", model, reader)
            side.engine = await stack.enter_async_context(engine())
            sides.append(side)
        arena = await stack.enter_async_context(linked(sides[0], sides[1:]))
        heads = {"verifier": PrefixVerifier()} if way == "sprinter" else {}
        await arena.ask(question, WAYS[way], **heads)
        loop = asyncio.get_running_loop()
        if not isinstance(loop, MeasuredLoop):
            raise TypeError("only a MeasuredLoop knows how long it was held")
        loop.wall_s = loop.cpu_s = 0.0
        given = await arena.ask(question, WAYS[way], **heads)
        return given, loop.wall_s, loop.cpu_s
