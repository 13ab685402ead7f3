"""The oracle under load: texts of many answers at once, each equal to its run alone (SPEC 0).

Two sides in this process, whose models agree now and then only, so that drafts are refused and
forwards preempted.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from dragonrt.backends.backend import Document
from dragonrt.backends.mixture import Weighing
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.mode import Prepared
from dragonrt.modes.prefix import start_hash
from dragonrt.modes.question import Question
from dragonrt.node.answers.client_session import ClientSession
from dragonrt.node.answers.model_session import ModelSession, PrefillResult
from dragonrt.node.worker import Worker
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.pair import SimulatedSide
from dragonrt.testing.scripted import Script
from dragonrt.traces.events import Record, TokenDecided
from scripts.lab.arena import Arena, Given, linked
from scripts.lab.model_sides import worker

DOCUMENT_TOKENS, QUESTION_TOKENS, LONG = 60, 12, 700


async def texts_under_load(
    models: Sequence[LanguageModel], documents: int, answers: int, tokens: int, lots: int, seed: int
) -> list[bool]:
    """Return whether each text, made beside others, is the one that it is alone."""
    script, equal, sides = Script(0, vocabulary=models[0].vocabulary), list[bool](), []
    async with AsyncExitStack() as stack:
        for number, model in enumerate(models):
            own: dict[str, Any] = {
                "model": model,
                "worker": await stack.enter_async_context(worker(model.backend)),
                "documents_kv": [
                    model.document_kv(_drawn(model, DOCUMENT_TOKENS + n, number))
                    for n in range(documents)
                ],
            }
            sides.append(
                WorkerSide(side="cloud" if number else "device", script=lambda _: script, **own)
            )
        arena = await stack.enter_async_context(linked(sides[0], sides[1:]))
        for lot in range(lots):
            questions = [
                Question(
                    prompt=str(LONG if place == 1 else QUESTION_TOKENS + place),
                    seed=seed + lot * answers + place,
                    sampler=Sampler(0.8),
                    max_tokens=tokens,
                )
                for place in range(answers)
            ]
            ends = [tokens // 2, *[tokens] * (answers - 1)]
            together = await asyncio.gather(*map(_text, [arena] * answers, questions, ends))
            alone = [await _text(arena, question, tokens) for question in questions]
            equal += [
                len(one) >= min(end, len(other)) and one == other[: len(one)]
                for one, other, end in zip(together, alone, ends, strict=True)
            ]
    return equal


def _drawn(model: LanguageModel, length: int, seed: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(4, model.vocabulary, length)]


async def _text(arena: Arena, question: Question, end: int) -> list[int]:
    """Return the tokens of an answer, which is stopped after so many."""

    def stop(record: Record) -> None:
        if isinstance(record.event, TokenDecided) and record.event.step + 1 == end:
            session.stop()

    settings = DragonSettings()
    resources = arena.resources(settings)
    session = ClientSession(arena.side, arena.connectors, question, settings, resources, stop)
    return Given(await session.ask()).tokens


@dataclass(slots=True, kw_only=True)
class WorkerSide(SimulatedSide):
    """A side that reads as many tokens as the question says in its worker, behind documents."""

    model: LanguageModel
    worker: Worker
    documents_kv: Sequence[Document]

    @override
    async def prepare(self, question: Question, **how: object) -> PrefillResult:
        cache = self._cache(question)
        await self.worker.read(cache.prefill)
        context = ModelSession(self.worker, cache)
        return PrefillResult(context, Prepared(self.model.exact_blocks), (), 0, 0.0, 0.0)

    def _cache(self, question: Question) -> PrefixCache:
        model, stored = self.model, self.documents_kv or [self.model.document_kv(())]
        prompt = _drawn(model, int(question.prompt), question.seed)
        capacity = len(prompt) + question.max_tokens
        rows = partial(model.rows, stored, capacity)
        weighing = Weighing(np.linspace(0.0, 1.0, len(stored)))
        return PrefixCache(
            rows, prompt, start_hash(question.seed), weighing, in_blocks=model.exact_blocks
        )
