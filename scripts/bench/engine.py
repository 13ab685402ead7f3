"""What answers gain by sharing forwards: many at once in one engine, against one after another.

Each session has documents of its own and drafts as in mode dragon: a forward, then quantizing and
sampling. The same sessions also draft one after another in the same engine.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from statistics import quantiles
from typing import Annotated, Any

import numpy as np
import torch

from dragonrt.backends.backend import Document
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.reader import Reader, Weighing
from dragonrt.backends.torch_.process import keep_freed_memory, usual_threads
from dragonrt.cli.options import option
from dragonrt.distributions import Step, codec, encode_distribution
from dragonrt.modes.mode import Prediction, Span, Work
from dragonrt.modes.prefix import extended, start_hash
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.backend_session import ForwardResult
from dragonrt.node.engine import Engine, ModelSession
from dragonrt.sampling.aggregation import Coupled
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Precision
from scripts.bench.harness import benchmark, series
from scripts.bench.random_models import SIZES, random_model
from scripts.papers.intervals import Row
from scripts.papers.model_sides import engine as engine_of

MODELS = ("dragon-small", "random-0.1b", "random-0.5b")
DOCUMENT_TOKENS, PROMPT_TOKENS, FEWEST_TOKENS = 100, 40, 4


class DraftingSession:
    """One answer that drafts by itself, each token by a forward, and the times of its tokens."""

    def __init__(self, reader: Reader, vocabulary: int, seed: int) -> None:
        self.tokens: list[int] = []
        self.times_s: list[float] = []
        self._reader = reader
        self._codec = codec(DragonSettings().codec, vocabulary)
        self._rule = Coupled(Noise(seed), Sampler(0.8))

    async def draft(self, engine: Engine, count: int) -> None:
        """Draft so many tokens."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        context = ModelSession(engine, self._reader)

        def take(outcome: ForwardResult) -> None:
            self.times_s.append(time.perf_counter())
            if outcome.error is not None:
                done.set_exception(outcome.error)
                return
            self.tokens.append(outcome.value)
            if len(self.tokens) == count:
                done.set_result(None)
            elif outcome.work.span is not None:
                context.start(self._after(outcome.work.span, outcome.value), take)

        context.start(self._work(Span([], [start_hash(0)], 0)), take)
        await done
        context.close()

    def _work(self, span: Span) -> Work:
        step = len(span.tokens)

        def head(said: Sequence[Prediction]) -> int:
            quantized = self._codec.quantize(self._rule.shape(said[-1].p), Step(step))
            encode_distribution(self._codec, quantized)
            return self._rule.draft("device", step, quantized.distribution)

        return Work(head, span, following=partial(self._after, span))

    def _after(self, span: Span, token: int) -> Work:
        hashes = extended(span.hashes, [token])
        return self._work(Span([*span.tokens, token], hashes, len(span.tokens) + 1))


@benchmark(
    {
        "model": "{model}",
        "type": "{dtype}",
        "n": "{sessions}",
        "tok/s": "{shared[tokens_per_s][median]:.1f}",
        "single": "{single[tokens_per_s][median]:.1f}",
        "ratio": "{ratio:.2f}",
        "p50/p95": "{shared[p50_ms]:.0f}/{shared[p95_ms]:.0f}",
        "CPU": "{shared[cpu_ms][median]:.1f}/{single[cpu_ms][median]:.1f}",
    },
    note="n sessions at once. tok/s: tokens per second of all of them together, sharing forwards; "
    "single: one session after another. p50, p95: milliseconds between two tokens of a session "
    "that shares. CPU: milliseconds of the whole process per token, shared and single. Medians of "
    "interleaved repeats.",
)
def engine(
    *,
    model: Annotated[
        tuple[str, ...],
        option("Bundled name, directory, hub id, or random-0.1b, -0.5b, -0.6b; may be repeated."),
    ] = MODELS,
    dtype: tuple[Precision, ...] = ("float32", "bfloat16"),
    sessions: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
    documents: int = 2,
    tokens: Annotated[int, option("Of all sessions together.", default="128", low=1)] = 128,
    repeats: int = 3,
    threads: int | None = None,
    seed: int = 1,
) -> Iterator[Row]:
    """Yield every model in every type, with each number of sessions."""
    torch.set_num_threads(threads or usual_threads())
    keep_freed_memory()
    for name, numbers in product(model, dtype):
        kind = getattr(torch, numbers)
        if name in SIZES:
            loaded = random_model(name, kind, seed)
        else:
            loaded = LanguageModel.load(name, "cpu", numbers, torch.get_num_threads())
        readers = _readers(loaded, max(sessions), documents, tokens, seed)
        for count in sessions:
            each = max(FEWEST_TOKENS, tokens // count)
            asyncio.run(_draft(loaded, readers[:count], 2, together=True))  # warms up
            runs: dict[bool, list[Row]] = {True: [], False: []}
            for _, together in product(range(repeats), runs):
                run = asyncio.run(_draft(loaded, readers[:count], each, together=together))
                runs[together].append(run)
            shared, single = map(_summed, runs.values())
            rates = [way["tokens_per_s"]["median"] for way in (shared, single)]
            texts = [run["texts"] for some in runs.values() for run in some]
            yield {
                "model": name,
                "dtype": numbers,
                "sessions": count,
                "threads": torch.get_num_threads(),
                "shared": shared,
                "single": single,
                "ratio": rates[0] / rates[1],
                "same_texts": all(text == texts[0] for text in texts),
            }


def _readers(
    model: LanguageModel, count: int, documents: int, tokens: int, seed: int
) -> list[Reader]:
    """Return so many sessions that have read their documents and a question each."""
    chance = np.random.default_rng(seed)

    def text(length: int) -> list[int]:
        return [int(token) for token in chance.integers(4, model.vocabulary, length)]

    stored: list[Document] = [model.document_kv(text(DOCUMENT_TOKENS)) for _ in range(documents)]
    weighing = Weighing(chance.normal(size=documents))
    capacity = PROMPT_TOKENS + max(tokens, FEWEST_TOKENS) + 1
    rows = (model.sequence(stored, capacity) for _ in range(count))
    return [Reader.behind(row, text(PROMPT_TOKENS), start_hash(0), weighing) for row in rows]


async def _draft(
    model: LanguageModel, readers: Sequence[Reader], tokens: int, *, together: bool
) -> Row:
    sessions = [DraftingSession(each, model.vocabulary, n) for n, each in enumerate(readers)]
    async with engine_of() as running:
        start_s, cpu_s = time.perf_counter(), time.process_time()
        if together:
            await asyncio.gather(*(session.draft(running, tokens) for session in sessions))
        else:
            for session in sessions:
                await session.draft(running, tokens)
        seconds, cpu_s = time.perf_counter() - start_s, time.process_time() - cpu_s
        forwards = sum(running.batches.values())
    total = len(sessions) * tokens
    return {
        "tokens_per_s": total / seconds,
        "gaps_ms": [1000 * float(gap) for each in sessions for gap in np.diff(each.times_s)],
        "cpu_ms": 1000 * cpu_s / total,
        "forwards": forwards / total,
        "texts": [session.tokens for session in sessions],
    }


def _summed(runs: Sequence[Row]) -> dict[str, Any]:
    cuts = quantiles([gap for run in runs for gap in run["gaps_ms"]], n=20)
    return {
        "tokens_per_s": series([run["tokens_per_s"] for run in runs]),
        "forwards_per_token": float(np.median([run["forwards"] for run in runs])),
        "p50_ms": cuts[9],
        "p95_ms": cuts[18],
        "cpu_ms": series([run["cpu_ms"] for run in runs]),
    }
