"""What answers gain by sharing forwards: many at once in one engine, against one forward at a time.

Each session has documents of its own and drafts as in mode dragon: a forward, then the head over
what it says. In the same run the same sessions go through an engine that reads for one at a time.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

import numpy as np
import torch
from rich.console import Console

from dragonrt.backends.backend import Document
from dragonrt.backends.batch import PIECE, Batch
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.reader import Reader, Weighing
from dragonrt.backends.torch_.process import keep_freed_memory, usual_threads
from dragonrt.distributions import Step, codec, encode_distribution
from dragonrt.modes.mode import Prediction, Span, Work
from dragonrt.modes.prefix import extended, start_hash
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.engine import Engine, ModelContext
from dragonrt.node.preparing import Outcome
from dragonrt.node.worker import WorkerThread
from dragonrt.sampling.aggregation import Coupled
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Precision
from scripts.bench.random_models import SIZES, random_model
from scripts.bench.report import Series, bench_table, print_report

NOTE = (
    "n sessions at once. tok/s: tokens per second of all of them together, sharing forwards; "
    "single: one forward at a time. p50, p95: milliseconds between two tokens of a session that "
    "shares. CPU: milliseconds of the whole process per token, shared and single. memory: how much "
    "of its bandwidth, measured in the same run, it takes to read the weights. Medians of "
    "interleaved repeats."
)
HEADINGS = ("model", "type", "n", "tok/s", "single", "ratio", "p50/p95", "CPU", "memory")
MODELS = ("dragon-small", "random-0.1b", "random-0.5b")
SHORT = {"float32": "fp32", "bfloat16": "bf16"}
SESSIONS = (1, 2, 4, 8, 16, 32)
DOCUMENT_TOKENS, PROMPT_TOKENS = 100, 40
FEWEST_TOKENS = 4
BUFFER_BYTES = 512 * 2**20


class CountingBatch(Batch):
    """A Batch that counts its forwards and, with `single`, reads for one at a time."""

    def __init__(self, *, single: bool) -> None:
        super().__init__()
        self.forwards = 0
        self._single = single
        self._waiting: list[Any] = []

    def __len__(self) -> int:
        return super().__len__() + len(self._waiting)

    def step(self, piece: int = PIECE) -> None:
        """One forward, for all or for the one that has waited longest."""
        self.forwards += 1
        if not self._single:
            super().step(piece)
            return
        self._waiting, self._tasks = self._tasks[1:], self._tasks[:1]
        super().step(piece)
        self._tasks, self._waiting = [*self._waiting, *self._tasks], []


class MeasuredEngine(Engine):
    """An Engine whose batch counts."""

    def __init__(self, heads: WorkerThread, *, single: bool) -> None:
        super().__init__(heads)
        self._batch: CountingBatch = CountingBatch(single=single)

    @property
    def forwards(self) -> int:
        """How many there were so far."""
        return self._batch.forwards


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
        context = ModelContext(engine, self._reader)

        def take(outcome: Outcome) -> None:
            self.times_s.append(time.perf_counter())
            if outcome.error is not None:
                done.set_exception(outcome.error)
                return
            self.tokens.append(outcome.value)
            if len(self.tokens) == count:
                done.set_result(None)
            else:
                context.start(self._behind(outcome.work, outcome.value), take)

        start = start_hash(0)
        context.start(self._work(Span([], [start], 0)), take)
        await done
        context.close()

    def _work(self, span: Span) -> Work:
        step = len(span.tokens)

        def head(said: Sequence[Prediction]) -> int:
            shaped = self._rule.shape(said[-1].p)
            quantized = self._codec.quantize(shaped, Step(step))
            encode_distribution(self._codec, quantized)
            return self._rule.draft("device", step, quantized.distribution)

        work: Work
        work = Work(head, span, following=lambda token: self._behind(work, token))
        return work

    def _behind(self, work: Work, token: int) -> Work:
        span = work.span
        if span is None:
            raise ValueError("there is no text to go on from")
        hashes = extended(span.hashes, [token])
        return self._work(Span([*span.tokens, token], hashes, len(span.tokens) + 1))


@dataclass(frozen=True, slots=True)
class Throughput:
    """What one run of some sessions came to."""

    tokens_per_s: float
    gaps_ms: list[float]  # between two tokens of a session
    cpu_ms: float  # per token
    forwards: float  # per token
    texts: list[list[int]]


def bench_engine(
    *,
    output: Console,
    messages: Console,
    models: Sequence[str] = MODELS,
    dtypes: Sequence[Precision] = ("float32", "bfloat16"),
    sessions: Sequence[int] = SESSIONS,
    documents: int = 2,
    tokens: int = 128,
    repeats: int = 3,
    threads: int | None = None,
    seed: int = 1,
) -> None:
    """Every model in every type, with each number of sessions, which make `tokens` together."""
    torch.set_num_threads(threads or usual_threads())
    keep_freed_memory()
    table = bench_table(*HEADINGS)
    results: list[dict[str, Any]] = []
    for name in models:
        for dtype in dtypes:
            with messages.status(f"making {name} in {dtype}") as status:
                model = _model(name, dtype, seed)
                bandwidth = _bytes_per_s()
                drafting = _readers(model, max(sessions), documents, tokens, seed)
                for count in sessions:
                    status.update(f"{count} sessions of {name} in {dtype}")
                    each = max(FEWEST_TOKENS, tokens // count)
                    runs = _runs(model, drafting[:count], each, repeats)
                    results.append(_result(model, bandwidth, runs) | {"sessions": count})
                    table.add_row(name, SHORT[dtype], str(count), *_cells(results[-1]))
                del model, drafting
    given = {"threads": torch.get_num_threads(), "documents": documents}
    results = [given | result for result in results]
    print_report(output, "engine", table, results, seed=seed, note=NOTE)


def _model(name: str, dtype: Precision, seed: int) -> LanguageModel:
    if name in SIZES:
        return random_model(name, getattr(torch, dtype), seed)
    return LanguageModel.load(name, "cpu", dtype, torch.get_num_threads())


def _bytes_per_s() -> float:
    """How fast memory is read here: the best of a few sums over more than any cache holds."""
    numbers = torch.ones(BUFFER_BYTES // 4)

    def seconds() -> float:
        start_s = time.perf_counter()
        numbers.sum()
        return time.perf_counter() - start_s

    return BUFFER_BYTES / min(seconds() for _ in range(5))


def _readers(
    model: LanguageModel, count: int, documents: int, tokens: int, seed: int
) -> list[Reader]:
    """So many sessions that have read their documents and a question each."""
    chance = np.random.default_rng(seed)

    def text(length: int) -> list[int]:
        return [int(token) for token in chance.integers(4, model.vocabulary, length)]

    stored: list[Document] = [model.document_kv(text(DOCUMENT_TOKENS)) for _ in range(documents)]
    weighing = Weighing(chance.normal(size=documents))
    capacity = PROMPT_TOKENS + max(tokens, FEWEST_TOKENS) + 1
    return [
        Reader.behind(
            model.sequence(stored, capacity), text(PROMPT_TOKENS), start_hash(0), weighing
        )
        for _ in range(count)
    ]


def _runs(
    model: LanguageModel, readers: Sequence[Reader], tokens: int, repeats: int
) -> dict[str, list[Throughput]]:
    """Runs of sessions that share forwards and of such that do not, in turns, after a warm-up."""

    def drafted(*, single: bool, tokens: int = tokens) -> Throughput:
        sessions = [
            DraftingSession(reader, model.vocabulary, number)
            for number, reader in enumerate(readers)
        ]
        return asyncio.run(_draft(sessions, tokens, single=single))

    drafted(single=False, tokens=2)
    runs: dict[str, list[Throughput]] = {"shared": [], "single": []}
    for _ in range(repeats):
        runs["shared"].append(drafted(single=False))
        runs["single"].append(drafted(single=True))
    return runs


async def _draft(sessions: Sequence[DraftingSession], tokens: int, *, single: bool) -> Throughput:
    async with WorkerThread("heads") as heads, MeasuredEngine(heads, single=single) as engine:
        start_s, cpu_s = time.perf_counter(), time.process_time()
        await asyncio.gather(*(session.draft(engine, tokens) for session in sessions))
        seconds, cpu_s = time.perf_counter() - start_s, time.process_time() - cpu_s
        forwards = engine.forwards
    total = len(sessions) * tokens
    gaps = [1000 * float(gap) for each in sessions for gap in np.diff(each.times_s)]
    texts = [session.tokens for session in sessions]
    return Throughput(total / seconds, gaps, 1000 * cpu_s / total, forwards / total, texts)


def _result(
    model: LanguageModel, bytes_per_s: float, runs: dict[str, list[Throughput]]
) -> dict[str, Any]:
    weight_bytes = model.parameters * getattr(torch, model.dtype).itemsize
    result: dict[str, Any] = {
        "model": model.name,
        "dtype": model.dtype,
        "weight_bytes": weight_bytes,
        "memory_gb_per_s": round(bytes_per_s / 1e9, 2),
    }
    for way, measured in runs.items():
        cuts = quantiles([gap for run in measured for gap in run.gaps_ms], n=20)
        forwards = Series(tuple(run.forwards for run in measured)).median
        tokens = Series(tuple(run.tokens_per_s for run in measured))
        result[way] = {
            "tokens_per_s": tokens.to_json(),
            "forwards_per_token": round(forwards, 4),
            "p50_ms": round(cuts[9], 3),
            "p95_ms": round(cuts[18], 3),
            "cpu_ms_per_token": Series(tuple(run.cpu_ms for run in measured)).to_json(),
            "share_of_bandwidth": round(tokens.median * forwards * weight_bytes / bytes_per_s, 4),
        }
    rates = [result[way]["tokens_per_s"]["median"] for way in ("shared", "single")]
    texts = [run.texts for measured in runs.values() for run in measured]
    result["ratio"] = round(rates[0] / rates[1], 3)
    result["same_texts"] = all(each == texts[0] for each in texts)
    return result


def _cells(result: dict[str, Any]) -> list[str]:
    shared, single = result["shared"], result["single"]
    cpu = [each["cpu_ms_per_token"]["median"] for each in (shared, single)]
    return [
        f"{shared['tokens_per_s']['median']:.1f}",
        f"{single['tokens_per_s']['median']:.1f}",
        f"{result['ratio']:.2f}",
        f"{shared['p50_ms']:.0f}/{shared['p95_ms']:.0f}",
        f"{cpu[0]:.1f}/{cpu[1]:.1f}",
        f"{100 * shared['share_of_bandwidth']:.0f} %",
    ]
