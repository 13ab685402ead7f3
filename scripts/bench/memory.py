"""What answers hold in memory: KV, and everything beside it, at the moment when it is most.

Both sides of some answers are in this process, on one model of random weights, each with an engine
of its own. All answers read the same documents. What more of them hold is measured against none.
"""

import asyncio
import ctypes
import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import torch
from rich.console import Console

from dragonrt.backends.backend import Document
from dragonrt.backends.kv_pool import KvPool
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.reader import Reader, Weighing
from dragonrt.errors import DragonError
from dragonrt.experiments.arena import Arena
from dragonrt.modes.prefix import start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.client_session import ClientSession
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.testing.scripted import Script
from dragonrt.traces.events import Record, TokenDecided
from scripts.bench.random_models import random_model
from scripts.bench.report import bench_table, print_report
from scripts.papers.model_sides import ReadingSide, engine
from scripts.papers.virtual_arena import linked

NOTE = (
    "MB of one side's session in mode dragon, near its last token. counted: set aside in the pool "
    "for its own KV. KV: what its text takes of that, in the model's type. measured: "
    "what the process holds (the proportional set size: a shared page counts once), less what it "
    "holds without answers, per session. beside: measured less KV. documents: what all share."
)
MB = 1e6
LATE = 20
"""So many tokens before its end an answer is looked at: its last drafts come a little earlier."""
LONGEST_PAUSE_S = 60.0


def bench_memory(
    *,
    output: Console,
    messages: Console,
    model: str = "random-0.5b",
    answers: Sequence[int] = (1, 4),
    documents: int = 2,
    document_tokens: int = 100,
    prompt_tokens: int = 150,
    tokens: int = 50,
    seed: int = 1,
) -> None:
    """Sessions of `prompt_tokens` and `tokens` of text behind the documents, in bfloat16."""
    if sys.platform != "linux":
        raise DragonError("what a process holds is measured on Linux only")
    table = bench_table("sessions", "counted", "KV", "measured", "beside", "documents")
    results: list[dict[str, Any]] = []
    chance = np.random.default_rng(seed)

    def text(length: int) -> list[int]:
        return [int(token) for token in chance.integers(4, loaded.vocabulary, length)]

    with messages.status(f"making {model}"):
        loaded = random_model(model, torch.bfloat16, seed)
        pool = KvPool()
        made = [loaded.document_kv(text(document_tokens)) for _ in range(documents)]
        stored = [pool.keep(str(number), each) for number, each in enumerate(made)]
        token_bytes = made[0].bytes / document_tokens
        del made
    question = Question(seed=seed, sampler=Sampler(0.8), max_tokens=tokens)
    prompts = [text(prompt_tokens) for _ in range(max(answers))]
    shared = pool.used
    for count in (max(answers), *answers):  # the first fills what all share
        with messages.status(f"{count} answers at once"):
            run = _held(loaded, stored, pool, question, prompts[:count])
            held, counted, under_way = asyncio.run(run)
        sessions = 2 * under_way
        own = documents * (prompt_tokens + tokens) * token_bytes
        result = {
            "sessions": sessions,
            "counted_mb": round((counted - shared) / sessions / MB, 3),
            "kv_mb": round(own / MB, 3),
            "measured_mb": round(held / sessions / MB, 3),
            "beside_mb": round((held / sessions - own) / MB, 3),
            "documents_mb": round(shared / MB, 3),
        }
        results.append(result)
        if len(results) > 1:
            table.add_row(str(sessions), *(f"{result[name]:.2f}" for name in list(result)[1:]))
    print_report(output, "memory", table, results[1:], seed=seed, note=NOTE)


async def _held(
    model: LanguageModel,
    stored: Sequence[Document],
    pool: KvPool,
    question: Question,
    prompts: Sequence[Sequence[int]],
) -> tuple[int, int, int]:
    """Bytes that all answers hold together when the last one is near its end, those that are
    counted, and how many answers are under way: some may have ended.
    """
    found: list[tuple[int, int, int]] = []
    decided = dict.fromkeys(range(len(prompts)), 0)

    async with AsyncExitStack() as stack:
        sides = []
        for name in ("device", "cloud"):
            side = _side(name, model, stored, pool, prompts)
            side.engine = await stack.enter_async_context(engine())
            sides.append(side)
        arena = await stack.enter_async_context(linked(sides[0], sides[1:]))
        before = held_bytes()
        engines = [each for side in sides if (each := side.engine) is not None]
        threads = [*engines, *(each.heads for each in engines)]
        # All of them at rest: a forward's logits are the forward's, not the sessions'.
        pause = Barrier(len(threads), lambda: found.append(look()))

        def look() -> tuple[int, int, int]:
            ended = sum(step == question.max_tokens - 1 for step in decided.values())
            return held_bytes() - before, pool.used, len(decided) - ended

        def rest() -> None:
            pause.wait(LONGEST_PAUSE_S)

        def heard(number: int, record: Record) -> None:
            if not isinstance(record.event, TokenDecided):
                return
            late = min(decided.values()) >= question.max_tokens - LATE
            decided[number] = record.event.step
            if not late and min(decided.values()) >= question.max_tokens - LATE:
                for thread in threads:
                    thread.submit(rest)

        asked = (_ask(arena, question, number, heard) for number in range(len(prompts)))
        await asyncio.gather(*asked)
    return found[0]


async def _ask(arena: Arena, question: Question, number: int, heard: Any) -> None:
    numbered = replace(question, prompt=str(number), seed=question.seed + number)
    settings = DragonSettings()
    asking = ClientSession(
        arena.side,
        arena.connectors,
        numbered,
        settings,
        arena.resources(settings),
        lambda record: heard(number, record),
    )
    await asking.ask()


def _side(
    side: Side,
    model: LanguageModel,
    stored: Sequence[Document],
    pool: KvPool,
    prompts: Sequence[Sequence[int]],
) -> ReadingSide:
    """One that reads the prompt of the question's number behind the documents."""

    def read(question: Question) -> Reader:
        prompt = prompts[int(question.prompt)]
        rows = model.sequence(stored, len(prompt) + question.max_tokens, pool)
        weighing = Weighing(np.zeros(len(stored)))
        return Reader.behind(rows, prompt, start_hash(question.seed), weighing)

    script = Script(0, vocabulary=model.vocabulary)
    return ReadingSide(side=side, script=lambda _: script, read=read)


def held_bytes() -> int:
    """What this process holds, in bytes, once the allocator has given back what is free."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return 1024 * next(_kilobytes("Pss:"))


def _kilobytes(name: str) -> Iterator[int]:
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith(name):
            yield int(line.split()[1])
