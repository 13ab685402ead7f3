"""What answers gain by sharing forwards: many at once in one thread, against one after another.

Each session has documents of its own and drafts as in mode dragon: a forward, then quantizing and
sampling. The same sessions also draft one after another in the same engine.
"""

import asyncio
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
from dragonrt.node.model_thread import ModelThread
from dragonrt.node.process.composition import load_model
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import Coupled
from dragonrt.sampling.samplers import Sampler
from scripts.lab.harness import benchmark, series
from scripts.lab.intervals import Row
from scripts.lab.model_sides import thread as thread_of

DOCUMENT_TOKENS, PROMPT_TOKENS, FEWEST_TOKENS = 100, 40, 4


@benchmark(
    {
        "model": "{model}",
        "n": "{sessions}",
        "tok/s": "{shared[tokens_per_s][median]:.1f}",
        "single": "{single[tokens_per_s][median]:.1f}",
        "ratio": "{ratio:.2f}",
        "p50/p95": "{shared[p50_ms]:.0f}/{shared[p95_ms]:.0f}",
    },
    note="n sessions at once. tok/s: tokens per second of all of them together, sharing forwards; "
    "single: one session after another. p50, p95: milliseconds between two tokens of a session "
    "that shares. Medians of interleaved repeats.",
)
def engine(
    *,
    model: Annotated[
        tuple[str, ...], option("Name, GGUF file, directory or hub id; may be repeated.")
    ] = (bundled.DEFAULT_MODEL,),
    sessions: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
    documents: int = 2,
    tokens: Annotated[int, option("Tokens of all sessions.", default="128", low=1)] = 128,
    repeats: int = 3,
    seed: int = 1,
) -> Iterator[Row]:
    """Yield every model with each number of sessions."""
    for name in model:
        loaded = load_model(SideSettings("device", name))
        readers = _readers(loaded, max(sessions), documents, tokens, seed)
        for count in sessions:
            each = max(FEWEST_TOKENS, tokens // count)
            measured = partial(_measured, loaded, readers[:count])
            asyncio.run(measured(2, together=True))  # warms up
            runs: dict[bool, list[Row]] = {True: [], False: []}
            for _, together in product(range(repeats), runs):
                runs[together].append(asyncio.run(measured(each, together=together)))
            shared, single = map(_summed, runs.values())
            texts = [run["texts"] for run in [*runs[True], *runs[False]]]
            yield {
                "model": name,
                "sessions": count,
                "threads": usual_threads(),
                "shared": shared,
                "single": single,
                "ratio": shared["tokens_per_s"]["median"] / single["tokens_per_s"]["median"],
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
    rows, start = (model.rows(stored, capacity) for _ in range(count)), start_hash(0)
    return [PrefixCache.with_prompt_read(row, text(PROMPT_TOKENS), start, weighing) for row in rows]


async def _measured(
    model: LanguageModel, readers: Sequence[PrefixCache], tokens: int, *, together: bool
) -> Row:
    """Draft so many tokens of each session, all `together` or one after another."""
    forwards = list[int]()
    async with thread_of(model.backend) as running:
        running.on_forward = forwards.append
        drafts = [_drafted(running, reader, model.vocabulary, tokens) for reader in readers]
        start_s = time.perf_counter()
        drawn = await asyncio.gather(*drafts) if together else [await each for each in drafts]
        seconds = time.perf_counter() - start_s
    total = len(readers) * tokens
    return {
        "tokens_per_s": total / seconds,
        "gaps_ms": np.concatenate([1000 * np.diff(times_s) for _, times_s in drawn]),
        "forwards": len(forwards) / total,
        "texts": [text for text, _ in drawn],
    }


async def _drafted(
    thread: ModelThread, reader: PrefixCache, vocabulary: int, count: int
) -> tuple[Sequence[int], list[float]]:
    """Draft so many tokens, each by a forward; return them and their times in seconds."""
    code, rule = codec(DragonSettings().codec, vocabulary), Coupled(Noise(0), Sampler(0.8))

    def after(span: Span, token: int) -> Span:
        return Span([*span.tokens, token], extended(span.hashes, [token]), len(span.tokens) + 1)

    def work(span: Span) -> Work:
        step = len(span.tokens)

        def postprocess(said: Sequence[Prediction]) -> int:
            quantized = code.quantize(rule.shape(said[-1].p), Step(step))
            code.encode(quantized)
            return rule.draft("device", step, quantized.distribution)

        return Work(postprocess, span, following=lambda token: work(after(span, token)))

    context, span, times_s = ModelSession(thread, reader), Span([], [start_hash(0)], 0), []
    for _ in range(count):
        done: asyncio.Future[ForwardResult] = asyncio.get_running_loop().create_future()
        context.start(work(span), done.set_result)
        outcome = await done
        if outcome.error is not None:
            raise outcome.error
        times_s.append(time.perf_counter())
        span = after(span, outcome.value)
    context.close()
    return span.tokens, times_s


def _summed(runs: Sequence[Row]) -> dict[str, Any]:
    middle, late = np.percentile([run["gaps_ms"] for run in runs], (50, 95))
    return {
        "tokens_per_s": series([run["tokens_per_s"] for run in runs]),
        "forwards_per_token": float(np.median([run["forwards"] for run in runs])),
        "p50_ms": float(middle),
        "p95_ms": float(late),
    }
