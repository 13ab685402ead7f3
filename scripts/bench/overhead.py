"""What working together costs: the pair's pace and processor time over those of its sides alone.

Two real processes over loopback, coupled and leaderless. In the same run both sides decode the very
tokens of the pair's answers by themselves, at the same time, so that they share the machine alike.
"""

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

from dragonrt import bundled
from dragonrt.experiments.comparison import LEADERLESS, Given, costs
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import GREEDY, Question
from scripts.bench.harness import benchmark
from scripts.papers.arena import Arena
from scripts.papers.intervals import Row, paired, ratio
from scripts.papers.model_sides import document_reader, run
from scripts.papers.sample_sides import LoadedSide, sample_pair, sample_settings

FOLLOWING = LEADERLESS.settings()
WAYS = {"pair": replace(FOLLOWING, follow=False), "following": FOLLOWING}
PARTS = ("ms", "cpu", "loops")
_loaded = cache(LoadedSide.load)


@benchmark(
    {"model": "{model}", "rows": "{rows}", "way": "{way}"}
    | {part: f"{{{part}[mean]:.2f}}" for part in PARTS}
    | {"ratio": "{ms_ratio[mean]:.3f}", "cpu ratio": "{cpu_ratio[mean]:.3f}"}
    | {"from": "{cpu_ratio[low]:.3f}", "to": "{cpu_ratio[high]:.3f}"}
    | {"accepted": "{accepted_device:.2f}/{accepted_cloud:.2f}"},
    note="Milliseconds per token after the first. alone: each side decodes the pair's answers by "
    "itself, one forward per token, both at the same time; by the clock the slower one counts. "
    "pair: without following the better draft; following: with it. cpu: processor time of both "
    "processes, less that of the same questions for one token; loops: that of their event loops.",
)
def overhead(
    *,
    models: tuple[str, ...] = (bundled.SMOLLM2,),
    rows: tuple[int, ...] = (2, 4),
    tokens: int = 96,
    questions: int = 16,
    seed: int = 1,
) -> Iterator[Row]:
    """Yield what a token costs the pair and its sides alone, by documents per side."""
    prompts, spawn = bundled.questions()[:questions], multiprocessing.get_context("spawn")
    for model, count in product(models, rows):
        with sample_pair(model) as (device, port, pid), ProcessPoolExecutor(1, spawn) as beside:
            usual = Question(seed=seed, sampler=GREEDY, max_tokens=tokens, documents=count)
            usual = replace(usual, stop_tokens=device.model.stop_tokens)
            asked = [replace(usual, prompt=each.text) for each in prompts]
            yield from run(_measured(device, port, pid, beside, asked), virtual=False)


async def _measured(
    device: LoadedSide, port: int, pid: int, beside: ProcessPoolExecutor, asked: list[Question]
) -> list[Row]:
    model, later = device.model.name, list[int]()
    given: dict[str, list[Given]] = {way: [] for way in WAYS}
    spent: dict[str, list[Sequence[float]]] = {way: [] for way in ("alone", *WAYS)}
    async with device.connected(port) as arena:
        for question in asked:
            text = (await arena.ask(question, FOLLOWING)).tokens
            beside.submit(_decode, model, question, text[:1]).result()  # the first loads a model
            if len(text) == 1:
                continue
            later.append(len(text) - 1)
            for way, settings in WAYS.items():
                _, reading = await _ask(arena, replace(question, max_tokens=1), settings, pid)
                answer, whole = await _ask(arena, question, settings, pid)
                given[way].append(answer)
                spent[way].append([all_ - read for all_, read in zip(whole, reading, strict=True)])
            other = beside.submit(_decode, model, question, text)
            here, there = _decode_here(device, question, text), other.result()
            spent["alone"].append((max(here[0], there[0]), here[1] + there[1], 0.0))
    rows = []
    for way, samples in spent.items():
        row: Row = {"model": model, "rows": asked[0].documents, "way": way}
        for place, part in enumerate(PARTS):
            own, base = ([each[place] for each in of] for of in (samples, spent["alone"]))
            row[part], row[f"{part}_ratio"] = (
                paired(ratio, own, other).to_json() for other in (later, base)
            )
        rows.append(row | costs(given.get(way) or given["pair"]))
    return rows


async def _ask(
    arena: Arena, question: Question, settings: DragonSettings, pid: int
) -> tuple[Given, tuple[float, ...]]:
    """Return an answer, and its milliseconds: after the first token, and of the processor."""
    before = _processor_ms(pid)
    given = await arena.ask(question, settings)
    cpu, loops = (now - then for now, then in zip(_processor_ms(pid), before, strict=True))
    return given, (1000 * (given.seconds - given.first_s), cpu, loops)


def _processor_ms(pid: int) -> tuple[float, float]:
    """Return the processor time of this process and that one, and of their main threads (Linux)."""
    whole_s = time.process_time() + time.clock_gettime(~pid << 3 | 2)
    main_ns = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text("ascii").split()[0]
    return 1000 * whole_s, 1000 * time.thread_time() + int(main_ns) / 1e6


def _decode(model: str, question: Question, tokens: list[int]) -> tuple[float, float]:
    """Decode in another process, which keeps its model."""
    return _decode_here(_loaded(sample_settings("cloud", model)), question, tokens)


def _decode_here(side: LoadedSide, question: Question, tokens: list[int]) -> tuple[float, float]:
    """Return the milliseconds of decoding the later tokens, each by its own forward: clock, CPU."""
    reader = document_reader(side, replace(question, max_tokens=len(tokens)))
    text = TokenPrefix(start_hash(question.seed), tokens)
    start_s, cpu_s = time.perf_counter(), time.process_time()
    for length in range(1, len(tokens)):
        reader.read(text.tokens[:length], text.hashes[: length + 1], length)
    return 1000 * (time.perf_counter() - start_s), 1000 * (time.process_time() - cpu_s)
