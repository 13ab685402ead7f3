"""What answers gain by sharing forwards: many at once in one worker, against one after another.

Each session has documents of its own and drafts as in mode dragon: a forward, then quantizing and
sampling. The same sessions also draft one after another in the same engine, and all together while
it reads a long question.
"""

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Annotated, Any

import numpy as np

from dragonrt import bundled
from dragonrt.backends.backend import Document
from dragonrt.backends.mixture import Weighing
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.backends.resources import usual_threads
from dragonrt.cli.options import option
from dragonrt.distributions import Step, codec
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.mode import Prediction, Span, Work
from dragonrt.modes.prefix import extended, start_hash
from dragonrt.node.answers.model_session import ForwardResult, ModelSession
from dragonrt.node.process.composition import load_model
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.node.worker import Worker
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import Coupled
from dragonrt.sampling.samplers import Sampler
from scripts.lab.harness import benchmark, series
from scripts.lab.intervals import Row
from scripts.lab.model_sides import worker as worker_of

DOCUMENT_TOKENS, PROMPT_TOKENS, LONG_PROMPT_TOKENS, FEWEST_TOKENS = 100, 40, 400, 4


class DraftingSession:
    """One answer that drafts by itself, each token by a forward, and the times of its tokens."""

    def __init__(self, reader: PrefixCache, vocabulary: int, seed: int) -> None:
        self.tokens: list[int] = []
        self.times_s: list[tuple[float, float]] = []  # of the clock, and of the process's CPU
        self._reader = reader
        self._codec = codec(DragonSettings().codec, vocabulary)
        self._rule = Coupled(Noise(seed), Sampler(0.8))

    async def draft(self, worker: Worker, count: int) -> None:
        """Draft so many tokens."""
        context = ModelSession(worker, self._reader)
        span = Span([], [start_hash(0)], 0)
        for _ in range(count):
            done: asyncio.Future[ForwardResult] = asyncio.get_running_loop().create_future()
            context.start(self._work(span), done.set_result)
            outcome = await done
            if outcome.error is not None:
                raise outcome.error
            self.times_s.append((time.perf_counter(), time.process_time()))
            self.tokens.append(outcome.value)
            span = _after(span, outcome.value)
        context.close()

    def _work(self, span: Span) -> Work:
        step = len(span.tokens)

        def postprocess(said: Sequence[Prediction]) -> int:
            quantized = self._codec.quantize(self._rule.shape(said[-1].p), Step(step))
            self._codec.encode(quantized)
            return self._rule.draft("device", step, quantized.distribution)

        return Work(postprocess, span, following=lambda token: self._work(_after(span, token)))


def _after(span: Span, token: int) -> Span:
    return Span([*span.tokens, token], extended(span.hashes, [token]), len(span.tokens) + 1)


@benchmark(
    {
        "model": "{model}",
        "n": "{sessions}",
        "tok/s": "{shared[tokens_per_s][median]:.1f}",
        "single": "{single[tokens_per_s][median]:.1f}",
        "ratio": "{ratio:.2f}",
        "p50/p95": "{shared[p50_ms]:.0f}/{shared[p95_ms]:.0f}",
        "CPU": "{shared[cpu_ms][median]:.1f}/{single[cpu_ms][median]:.1f}",
        "ratio ": "{cpu_ratio:.2f}",
        "delay": "{delay[0]:.1f}/{delay[1]:.1f}/{delay[2]:.1f}",
    },
    note="n sessions at once. tok/s: tokens per second of all of them together, sharing forwards; "
    "single: one session after another. p50, p95: milliseconds between two tokens of a session "
    "that shares. CPU: milliseconds of the whole process per token, shared and single. Medians of "
    "interleaved repeats. delay: p50, p99 and maximum of how much longer a token takes while "
    f"{LONG_PROMPT_TOKENS} tokens are read, in usual gaps, by CPU time.",
)
def engine(
    *,
    model: Annotated[
        tuple[str, ...],
        option("Name, GGUF file, directory or hub id; may be repeated."),
    ] = (bundled.DEFAULT_MODEL,),
    sessions: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
    documents: int = 2,
    tokens: Annotated[int, option("Of all sessions together.", default="128", low=1)] = 128,
    repeats: int = 3,
    seed: int = 1,
) -> Iterator[Row]:
    """Yield every model with each number of sessions."""
    for name in model:
        loaded = load_model(SideSettings("device", name))
        readers = _readers(loaded, max(sessions), documents, tokens, seed)
        for count in sessions:
            each = max(FEWEST_TOKENS, tokens // count)
            draft = partial(_draft, loaded, readers[:count])
            asyncio.run(draft(2, together=True))  # warms up
            runs: dict[bool, list[Row]] = {True: [], False: []}
            for _, together in product(range(repeats), runs):
                runs[together].append(asyncio.run(draft(each, together=together)))
            shared, single = map(_summed, runs.values())
            nothing = [loaded.document_kv(())] * documents
            open_rows = partial(loaded.rows, nothing, LONG_PROMPT_TOKENS)
            long = PrefixCache(open_rows, [5] * LONG_PROMPT_TOKENS, start_hash(0))
            beside = asyncio.run(draft(each, together=True, question=long))
            usual = np.median([run["gaps_ms"][:, 1] for run in runs[True]])
            delays = np.percentile(beside["gaps_ms"][:, 1], (50, 99, 100)) / usual - 1
            texts = [run["texts"] for run in [*runs[True], *runs[False], beside]]
            yield {
                "model": name,
                "sessions": count,
                "threads": usual_threads(),
                "shared": shared,
                "single": single,
                "ratio": shared["tokens_per_s"]["median"] / single["tokens_per_s"]["median"],
                "cpu_ratio": single["cpu_ms"]["median"] / shared["cpu_ms"]["median"],
                "delay": delays.tolist(),
                "same_texts": all(text == texts[0] for text in texts),
            }


def _readers(
    model: LanguageModel, count: int, documents: int, tokens: int, seed: int
) -> list[PrefixCache]:
    """Return so many sessions that have read their documents and a question each."""
    chance = np.random.default_rng(seed)

    def text(length: int) -> list[int]:
        return [int(token) for token in chance.integers(4, model.vocabulary, length)]

    stored: list[Document] = [model.document_kv(text(DOCUMENT_TOKENS)) for _ in range(documents)]
    weighing = Weighing(chance.normal(size=documents))
    capacity = PROMPT_TOKENS + max(tokens, FEWEST_TOKENS) + 1
    rows = (model.rows(stored, capacity) for _ in range(count))
    return [PrefixCache.behind(row, text(PROMPT_TOKENS), start_hash(0), weighing) for row in rows]


async def _draft(
    model: LanguageModel,
    readers: Sequence[PrefixCache],
    tokens: int,
    *,
    together: bool,
    question: PrefixCache | None = None,
) -> Row:
    """Draft, all `together` or one after another; perhaps while a long question is read."""
    sessions = [DraftingSession(each, model.vocabulary, n) for n, each in enumerate(readers)]
    until_s, forwards = math.inf, list[int]()
    async with worker_of(model.backend) as running:
        running.on_forward = forwards.append
        start_s, cpu_s = time.perf_counter(), time.process_time()
        if together:
            drafts = [asyncio.create_task(session.draft(running, tokens)) for session in sessions]
            if question is not None:
                await asyncio.sleep(0)  # the sessions are open
                await running.read(question.prefill)
                until_s = time.perf_counter()
            await asyncio.gather(*drafts)
        else:
            for session in sessions:
                await session.draft(running, tokens)
        seconds, cpu_s = time.perf_counter() - start_s, time.process_time() - cpu_s
    total = len(sessions) * tokens
    times_ms = [1000 * np.array([t for t in each.times_s if t[0] < until_s]) for each in sessions]
    return {
        "tokens_per_s": total / seconds,
        "gaps_ms": np.concatenate([np.diff(times, axis=0) for times in times_ms if len(times)]),
        "cpu_ms": 1000 * cpu_s / total,
        "forwards": len(forwards) / total,
        "texts": [session.tokens for session in sessions],
    }


def _summed(runs: Sequence[Row]) -> dict[str, Any]:
    middle, late = np.percentile([run["gaps_ms"][:, 0] for run in runs], (50, 95))
    return {
        "tokens_per_s": series([run["tokens_per_s"] for run in runs]),
        "forwards_per_token": float(np.median([run["forwards"] for run in runs])),
        "p50_ms": float(middle),
        "p95_ms": float(late),
        "cpu_ms": series([run["cpu_ms"] for run in runs]),
    }
