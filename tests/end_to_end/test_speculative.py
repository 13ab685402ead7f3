"""Speculative decoding for real: a small model here, a larger one in another process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dragonrt.bundled import questions
from dragonrt.chat.conversation import Conversation, Reply, stop_tokens
from dragonrt.distributions import Distribution
from dragonrt.experiments.cloud_process import CloudProcess
from dragonrt.language.model import LanguageModel
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.models import Jitter, LinkModel
from dragonrt.link.stream import Stream
from dragonrt.runtime import main as programs
from dragonrt.runtime.draft import Line, start_hash
from dragonrt.runtime.endpoints import Address
from dragonrt.runtime.modes.blocks import Answer
from dragonrt.runtime.modes.speculative import (
    BlockShape,
    SpeculativePlan,
    beginning,
    dropped_mass,
)
from dragonrt.runtime.process import SideSettings, local_side
from dragonrt.runtime.trace_summary import read_events
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.races import race_at
from dragonrt.sampling.samplers import Sampler

TEXTS = [question.text for question in questions()[:3]]
GREEDY = SpeculativePlan(seed=0, sampler=Sampler(0.0), max_tokens=24, documents=0)
"""Without documents: what is compared is the models."""


@pytest.fixture(scope="module")
def draft_model() -> LanguageModel:
    return LanguageModel.load("dragon-draft", "cpu")


def slow_link(stream: Stream) -> Stream:
    """30 ms in each direction, with jitter."""
    up, down = (
        LinkModel(latency_s=0.03, jitter=Jitter("uniform", 0.02), seed=5, direction=direction)
        for direction in ("up", "down")
    )
    return EmulatedStream(stream, up, down)


async def alone(model: LanguageModel, question: str, plan: SpeculativePlan) -> list[int]:
    """What the cloud's model says by itself, token by token, without any protocol."""
    stops = stop_tokens(model, model.prompt.stops)
    noise = Noise(plan.seed)
    async with local_side(SideSettings("cloud", device="cpu"), model, None) as side:
        predictor = (await side.prepare_predictor(question, (), plan)).model
        line = Line(start_hash(plan.seed))
        while len(line) < plan.max_tokens and not set(line.tokens[-1:]) & set(stops):
            said = (await predictor.predict(line, len(line), len(line)))[0]
            p = Distribution.from_dense(plan.sampler.dense(said.p))
            line.append(race_at(noise, len(line), p))
    return line.tokens


@asynccontextmanager
async def speculating(
    model: LanguageModel, port: int, settings: SideSettings, *, far: bool = False
) -> AsyncIterator[Conversation[SpeculativePlan, Answer]]:
    """A device that drafts for the cloud at a port."""
    address = Address("127.0.0.1", port, emulate=slow_link if far else None)
    async with programs.device(settings, model, None, address) as (side, connector):
        yield Conversation(model, GREEDY, beginning(side, connector, "wait"), 0)


async def ask(
    conversation: Conversation[SpeculativePlan, Answer], question: str, plan: SpeculativePlan
) -> Reply[Answer]:
    """A question that begins a conversation of its own."""
    conversation.plan, conversation.seed, conversation.history = plan, plan.seed, []
    reply = await conversation.ask(question)
    assert reply.answer.counts.alone_from is None, reply.answer.notices
    return reply


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_the_text_is_the_large_models_own(
    cloud: CloudProcess, model: LanguageModel, draft_model: LanguageModel, temperature: float
) -> None:
    port, settings = cloud.wait_ready(), SideSettings("device", device="cpu")
    plan = replace(GREEDY, sampler=Sampler(temperature))
    async with (
        speculating(draft_model, port, settings) as near,
        speculating(draft_model, port, settings, far=True) as far,
    ):
        for seed, question in enumerate(TEXTS):
            seeded = replace(plan, seed=seed)
            expected = await alone(model, question, seeded)
            waits = replace(seeded, shape=BlockShape(length=7, outstanding=1))
            for conversation in (near, far):
                for each in (seeded, waits):
                    reply = await ask(conversation, question, each)
                    assert reply.answer.tokens == expected, (question, each)
                    assert reply.answer.counts.accepted > 0


@pytest.mark.slow
async def test_rejection_gives_one_text_over_every_link(
    cloud: CloudProcess, draft_model: LanguageModel, tmp_path: Path
) -> None:
    """At temperature 0 it is the large model's own; above, C-SQS keeps its promise."""
    port = cloud.wait_ready()
    file = tmp_path / "device.jsonl"
    settings = SideSettings("device", device="cpu", trace=file)
    plan = replace(GREEDY, rule="rejection", codec="csqs:0.01:100")
    greedy = await ask_greedy(cloud, draft_model)
    async with (
        speculating(draft_model, port, settings) as near,
        speculating(draft_model, port, SideSettings("device", device="cpu"), far=True) as far,
    ):
        assert (await ask(near, TEXTS[0], plan)).answer.tokens == greedy
        warm = replace(plan, seed=7, sampler=Sampler(0.8), shape=BlockShape(length=9, budget=1500))
        reply = await ask(near, TEXTS[1], warm)
        assert (await ask(far, TEXTS[1], warm)).answer.tokens == reply.answer.tokens
    events = read_events(file.read_text().splitlines(keepends=True), "trace")
    starts = [number for number, event in enumerate(events) if event["event"] == "open"]
    found = dropped_mass(events[starts[-1] :])
    assert found is not None
    assert found.holds
    numbers = reply.to_json()["statistics"]
    assert numbers["bits_up"] > 0
    assert 0 < numbers["bits_per_token"] < 5000


async def ask_greedy(cloud: CloudProcess, draft_model: LanguageModel) -> list[int]:
    settings = SideSettings("device", device="cpu")
    async with speculating(draft_model, cloud.wait_ready(), settings) as near:
        return (await ask(near, TEXTS[0], GREEDY)).answer.tokens
