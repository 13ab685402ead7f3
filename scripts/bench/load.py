"""The oracle under load: texts of many answers at once, each equal to its run alone (SPEC 0).

Two sides with engines of their own in this process, on small models of random weights that agree
now and then only, so that drafts are refused and forwards preempted. Of the answers that are under
way together one is stopped midway, and one has a question that is long to read.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from rich.console import Console

from dragonrt.backends.batch import Reading
from dragonrt.backends.kv_pool import KvPool
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.reader import Reader, Weighing
from dragonrt.modes.mode import Prepared
from dragonrt.modes.prefix import start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.client_session import ClientSession
from dragonrt.node.engine import Engine, ModelContext
from dragonrt.node.preparing import PrefillResult
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.pair import SimulatedSide
from dragonrt.testing.scripted import Script
from dragonrt.traces.events import Record, TokenDecided
from scripts.bench.random_models import ARCHITECTURES, small_pair
from scripts.bench.report import bench_table, print_report
from scripts.papers.arena import Arena
from scripts.papers.model_sides import engine
from scripts.papers.virtual_arena import linked

NOTE = (
    "Each cell: texts equal to those of their runs alone, of all texts. So many answers are under "
    "way at once that documents share memory and forwards; of each such lot one is stopped midway "
    "(its beginning is compared), and one question is long."
)
DTYPES = ("float32", "bfloat16")
DOCUMENT_TOKENS, QUESTION_TOKENS, LONG = 60, 12, 700


@dataclass(frozen=True, slots=True)
class Lot:
    """Answers at once: how many, and how long; in all so many lots with seeds of their own."""

    answers: int = 16
    tokens: int = 16
    lots: int = 7


def bench_load(
    *,
    output: Console,
    messages: Console,
    architectures: Sequence[str] = tuple(ARCHITECTURES),
    documents: Sequence[int] = (0, 1, 2),
    lot: Lot | None = None,
    seed: int = 1,
) -> None:
    """Every architecture in both types, with so many documents on each side."""
    lot = lot or Lot()
    table = bench_table("architecture", "type", *(f"{count} documents" for count in documents))
    results: list[dict[str, Any]] = []
    for architecture in architectures:
        for dtype in DTYPES:
            models = small_pair(architecture, getattr(torch, dtype), seed)
            cells = []
            for count in documents:
                with messages.status(f"{architecture} in {dtype}, {count} documents"):
                    equal = texts_under_load(models, count, lot, seed)
                cells.append(f"{sum(equal)} of {len(equal)}")
                results.append(
                    {
                        "architecture": architecture,
                        "dtype": dtype,
                        "exact_blocks": models[0].exact_blocks,
                        "documents": count,
                        "at_once": lot.answers,
                        "texts": len(equal),
                        "equal": sum(equal),
                    }
                )
            table.add_row(architecture, dtype, *cells)
    print_report(output, "load", table, results, seed=seed, note=NOTE)


def texts_under_load(
    models: Sequence[LanguageModel], documents: int, lot: Lot, seed: int
) -> list[bool]:
    """Whether each text, made beside others, is the one that it is alone."""
    return asyncio.run(_texts_under_load(models, documents, lot, seed))


async def _texts_under_load(
    models: Sequence[LanguageModel], documents: int, lot: Lot, seed: int
) -> list[bool]:
    equal: list[bool] = []
    async with AsyncExitStack() as stack:
        sides = [_Side.of(model, documents, seed + number) for number, model in enumerate(models)]
        for side in sides:
            side.engine = await stack.enter_async_context(engine())
        arena = await stack.enter_async_context(linked(sides[0], sides[1:]))
        for number in range(lot.lots):
            questions = [
                Question(
                    prompt=str(LONG if place == 1 else QUESTION_TOKENS + place),
                    seed=seed + number * lot.answers + place,
                    sampler=Sampler(0.8),
                    max_tokens=lot.tokens,
                )
                for place in range(lot.answers)
            ]
            stops = [lot.tokens // 2 if place == 0 else lot.tokens for place in range(lot.answers)]
            asked = [_text(arena, *each) for each in zip(questions, stops, strict=True)]
            together = await asyncio.gather(*asked)
            alone = [await _text(arena, question, lot.tokens) for question in questions]
            equal += [
                len(text) >= min(stop, len(expected)) and text == expected[: len(text)]
                for text, expected, stop in zip(together, alone, stops, strict=True)
            ]
    return equal


async def _text(arena: Arena, question: Question, stop: int) -> list[int]:
    """The tokens of an answer, which is stopped after so many."""

    def heard(record: Record) -> None:
        if isinstance(record.event, TokenDecided) and record.event.step + 1 == stop:
            asking.stop()

    settings = DragonSettings()
    resources = arena.resources(settings)
    asking = ClientSession(arena.side, arena.connectors, question, settings, resources, heard)
    return (await asking.ask()).tokens


@dataclass(slots=True, kw_only=True)
class _Side(SimulatedSide):
    """One that reads questions in its engine, behind documents that are in memory once."""

    model: LanguageModel
    texts: list[list[int]]
    pool: KvPool = field(default_factory=KvPool)
    engine: Engine | None = None

    @classmethod
    def of(cls, model: LanguageModel, documents: int, seed: int) -> "_Side":
        """The first of two models is the device's."""
        chance = np.random.default_rng(seed)
        texts = [
            [int(token) for token in chance.integers(4, model.vocabulary, DOCUMENT_TOKENS + place)]
            for place in range(documents)
        ]
        script = Script(0, vocabulary=model.vocabulary)
        return cls(
            side="cloud" if model.name.endswith("1") else "device",
            script=lambda _: script,
            model=model,
            texts=texts,
        )

    async def prepare(self, question: Question, *, verifies: bool) -> PrefillResult:
        if self.engine is None:
            raise ValueError("the side has no engine")
        preparing = self.engine.read(lambda: self._reading(question))
        context = ModelContext(self.engine, await preparing)
        return PrefillResult(context, Prepared(self.model.exact_blocks), (), 0, 0.0, 0.0)

    def _reading(self, question: Question) -> Reading[Reader]:
        model, pool = self.model, self.pool
        stored = [
            pool.document(name) or pool.keep(name, model.document_kv(text))
            for name, text in ((str(number), text) for number, text in enumerate(self.texts))
        ] or [model.document_kv(())]
        chance = np.random.default_rng(question.seed)
        prompt = [int(each) for each in chance.integers(4, model.vocabulary, int(question.prompt))]
        rows = model.sequence(stored, len(prompt) + question.max_tokens, pool)
        weighing = Weighing(np.linspace(0.0, 1.0, len(stored)))
        return Reader.reading_prompt(
            rows, prompt, start_hash(question.seed), weighing, in_blocks=model.exact_blocks
        )
