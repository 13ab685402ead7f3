"""What working together costs: the pair's pace over that of its slower side alone, without latency.

Two real processes over loopback, coupled and leaderless. In the same run both sides decode the very
tokens of the pair's answer by themselves, at the same time, so that they share the machine alike.
"""

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import product

from dragonrt import bundled
from dragonrt.backends.backend import Preemption
from dragonrt.experiments.comparison import LEADERLESS, costs
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import GREEDY, Question
from scripts.bench.harness import benchmark, series
from scripts.papers.intervals import Row
from scripts.papers.model_sides import document_reader, run
from scripts.papers.sample_sides import LoadedSide, sample_pair, sample_settings


@benchmark(
    {
        "model": "{model}",
        "rows": "{rows}",
        "alone": "{alone_ms[median]:.2f} ms",
        "pair": "{pair_ms[median]:.2f} ms",
        "ratio": "{ratio:.3f}",
        "following": "{following_ms[median]:.2f} ms",
        "ratio ": "{ratio_following:.3f}",
        "accepted": "{accepted_device:.2f}/{accepted_cloud:.2f}",
    },
    note="alone: each side decodes the pair's answer by itself, one forward per token, both at the "
    "same time; the slower one counts. pair: time between tokens, without following the better "
    "line; following: with it. Medians of interleaved repeats.",
)
def overhead(
    *,
    models: tuple[str, ...] = ("dragon-small", "dragon-opt"),
    rows: tuple[int, ...] = (2, 4),
    tokens: int = 96,
    repeats: int = 7,
    seed: int = 1,
) -> Iterator[Row]:
    """Yield the pair's milliseconds per token beside the slower side's, by documents per side."""
    prompt = next(each.text for each in bundled.questions() if each.kind == "both")
    spawn = multiprocessing.get_context("spawn")
    for model, count in product(models, rows):
        question = Question(
            prompt=prompt, seed=seed, sampler=GREEDY, max_tokens=tokens, documents=count
        )
        with sample_pair(model) as (device, port), ProcessPoolExecutor(1, spawn) as beside:
            yield run(_measured(device, port, beside, question, repeats), virtual=False)


async def _measured(
    device: LoadedSide, port: int, beside: ProcessPoolExecutor, question: Question, repeats: int
) -> Row:
    following, answers = LEADERLESS.settings(), []
    ways = {"pair": replace(following, follow=False), "following": following}
    times: dict[str, list[float]] = {"alone": [], "pair": [], "following": []}
    async with device.connected(port) as arena:
        text = (await arena.ask(question, ways["pair"])).tokens
        beside.submit(_decode, device.model.name, question, text).result()
        for _ in range(repeats):
            for way, settings in ways.items():
                given = await arena.ask(question, settings)
                times[way].append(1000 * (given.between_s or 0.0))
                answers += [given] if way == "pair" else []
            other = beside.submit(_decode, device.model.name, question, text)
            times["alone"].append(max(_decode_here(device, question, text), other.result()))
    found, spent_of = {way: series(samples) for way, samples in times.items()}, costs(answers)
    return {
        "model": device.model.name,
        "rows": question.documents,
        **{f"{way}_ms": each for way, each in found.items()},
        "ratio": found["pair"]["median"] / found["alone"]["median"],
        "ratio_following": found["following"]["median"] / found["alone"]["median"],
        "accepted_device": spent_of["accepted_device"],
        "accepted_cloud": spent_of["accepted_cloud"],
    }


@cache
def _side(name: str) -> LoadedSide:
    return LoadedSide.load(sample_settings("cloud", name))


def _decode(model: str, question: Question, tokens: list[int]) -> float:
    """Decode in another process, which keeps its model."""
    return _decode_here(_side(model), question, tokens)


def _decode_here(side: LoadedSide, question: Question, tokens: list[int]) -> float:
    """Return the milliseconds per token of decoding these tokens, each by its own forward."""
    reader = document_reader(side, replace(question, max_tokens=len(tokens)))
    text = TokenPrefix(start_hash(question.seed), tokens)
    start_s = time.perf_counter()
    for length in range(1, len(tokens) + 1):
        reader.read(text.tokens[:length], text.hashes[: length + 1], length, Preemption())
    return 1000 * (time.perf_counter() - start_s) / len(tokens)
