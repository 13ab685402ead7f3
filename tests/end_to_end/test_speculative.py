"""Speculative decoding for real, exact and approximate, and in parts: two models, two processes."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.bundled import questions
from dragonrt.control.scheduler import Aggregator
from dragonrt.distributions import Distribution
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.node.connections.addresses import Address
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.sampling.noise import Noise, race_at
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.answer import Answer
from dragonrt.service.cloud_process import CloudProcess
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.file import read_trace
from dragonrt.traces.statistics import split

from .conftest import BOTH, SHORT, Alone, Device, DeviceAt, connected_device, counts, slow_link

TEXTS = [question.text for question in questions()[:2]]
GREEDY = Question(max_tokens=24, documents=0)
"""Without documents: what is compared is the models."""
WAITING = SpeculativeSettings(on_loss="wait")


def said_alone(model: LanguageModel, prompt: str, question: Question) -> list[int]:
    """What the cloud's model says by itself, token by token, without any protocol."""
    stops = model.answer_stops
    noise, alone = Noise(question.seed), Alone(model, replace(question, prompt=prompt))
    tokens: list[int] = []
    while len(tokens) < question.max_tokens and not set(tokens[-1:]) & set(stops):
        p = Distribution.from_dense(question.sampler.dense(alone.p))
        tokens.append(race_at(noise, len(tokens), p))
        alone.take(tokens[-1])
    return tokens


def speculating(
    model: LanguageModel, port: int, trace: Path | None = None, *, far: bool = False
) -> AbstractAsyncContextManager[Device]:
    """A device that drafts for the cloud at a port."""
    address = Address("127.0.0.1", port, emulate=slow_link(0.03, 0.02) if far else None)
    return connected_device(model, None, address, WAITING, trace)


async def ask(device: Device, prompt: str, question: Question, how: SpeculativeSettings) -> Answer:
    reply = await device.ask(prompt, question, how)
    assert counts(reply).alone_from is None, reply.decoded.notices
    return reply


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_the_text_is_the_large_models_own(
    cloud: CloudProcess, model: LanguageModel, draft_model: LanguageModel, temperature: float
) -> None:
    port = cloud.wait_ready()
    async with (
        speculating(draft_model, port) as near,
        speculating(draft_model, port, far=True) as far,
    ):
        for seed, prompt in enumerate(TEXTS):
            question = replace(GREEDY, sampler=Sampler(temperature), seed=seed)
            expected = said_alone(model, prompt, question)
            by_verdicts = replace(WAITING, cloud_decodes=False)
            in_turn = replace(by_verdicts, pipelined=False, block_tokens=7)
            looks = [replace(each, draft="lookup") for each in (WAITING, by_verdicts)]
            for device in (near, far):
                for how in (WAITING, by_verdicts, in_turn, *looks):
                    reply = await ask(device, prompt, question, how)
                    assert reply.decoded.tokens == expected, (question, how)
                    found = counts(reply)
                    assert found.decoded == 0 or how.cloud_decodes
                    assert found.accepted_tokens > 0 or found.decoded > 0 or how in looks
                    assert found.forwards == 0 or how not in looks


@pytest.mark.slow
async def test_rejection_gives_one_text_over_every_link(
    cloud: CloudProcess, model: LanguageModel, draft_model: LanguageModel, tmp_path: Path
) -> None:
    """At temperature 0 it is the large model's own; above, C-SQS keeps its promise."""
    port, trace = cloud.wait_ready(), tmp_path / "device.jsonl"
    how = replace(WAITING, rule="rejection", codec="csqs:0.01:100")
    async with (
        speculating(draft_model, port, trace) as near,
        speculating(draft_model, port, far=True) as far,
    ):
        given = (await ask(near, TEXTS[0], GREEDY, how)).decoded.tokens
        assert given == said_alone(model, TEXTS[0], GREEDY)
        warm = replace(GREEDY, seed=7, sampler=Sampler(0.8))
        limited = replace(how, block_tokens=9, budget=1500)
        reply = await ask(near, TEXTS[1], warm, limited)
        assert (await ask(far, TEXTS[1], warm, limited)).decoded.tokens == reply.decoded.tokens
    found = counts(reply).dropped_mass
    assert found is not None
    assert found.tokens > 0
    assert found.follows
    answers, _ = split(read_trace(trace))
    assert AnswerCounts.of(answers[-1]).dropped_mass == found
    numbers = reply.statistics
    assert numbers["bits_up"] > 0
    assert 0 < numbers["bits_per_token"] < 5000


@pytest.mark.slow
async def test_c_sqs_goes_on_with_its_threshold_in_the_next_answer(
    cloud: CloudProcess, draft_model: LanguageModel
) -> None:
    how = replace(WAITING, rule="rejection", codec="csqs:0.01:100", learning_rate=0.1)
    async with speculating(draft_model, cloud.wait_ready()) as device:
        warm = replace(GREEDY, sampler=Sampler(0.8))
        talk = device.conversation(warm, how)
        first = counts(await talk.ask(TEXTS[0])).dropped_mass
        second = counts(await talk.ask(TEXTS[1])).dropped_mass
    assert first is not None
    assert second is not None
    assert first.first.beta == 0.01
    assert second.first.beta == pytest.approx(first.threshold.beta)
    both = first + second
    assert both.follows
    assert both.dropped <= both.allowed
    assert (first + second).to_json()["bound"] < second.to_json()["bound"]


@pytest.mark.slow
async def test_the_threshold_leads_from_the_drafts_text_to_the_targets(
    cloud: CloudProcess, model: LanguageModel, draft_model: LanguageModel
) -> None:
    port, sprinting = cloud.wait_ready(), SprinterSettings(on_loss="wait")
    async with connected_device(draft_model, None, port, sprinting) as device:
        never, always = [
            await device.ask(TEXTS[0], GREEDY, replace(sprinting, threshold=threshold))
            for threshold in (0.0, 1.0)
        ]
        warm = replace(GREEDY, sampler=Sampler(1.0), seed=5)
        some, again = [await device.ask(TEXTS[0], warm) for _ in range(2)]
    assert never.decoded.tokens == said_alone(draft_model, TEXTS[0], GREEDY)
    assert never.statistics["target_calls"] == 0
    assert never.statistics["unread"] == never.statistics["unverified"] == len(never.decoded.tokens)
    assert always.decoded.tokens == said_alone(model, TEXTS[0], GREEDY)
    assert always.statistics["unverified"] == 0
    assert always.statistics["tokens_per_target_call"] == 1.0
    assert some.decoded.tokens == again.decoded.tokens, "a function of the seed"
    numbers = some.statistics
    assert numbers["target_calls"] + numbers["unverified"] == numbers["tokens"]
    assert some.to_object()["approximate"] is True


# A question of two parts: each part's text is that of the token-by-token run.


PARTS = [next(each.text for each in questions() if each.kind == k) for k in ("private", "public")]
ASKED = " ".join(PARTS)
LONG = replace(SHORT, max_tokens=40, seed=3, sampler=Sampler(0.8), relevance_floor=-1.0)


def tokens(reply: Answer) -> list[list[int]]:
    return [part.decoded.tokens for part in reply.parts]


@pytest.mark.slow
async def test_no_link_aggregator_or_level_changes_a_token_of_a_part(
    cloud: CloudProcess, device_at: DeviceAt
) -> None:
    port = cloud.wait_ready()
    async with device_at(port) as near, device_at(port, emulate=slow_link(0.05, 0.03)) as far:
        oracle = await near.ask(ASKED, LONG, replace(BOTH, aggregator=Aggregator.SYNC))
        first = (await near.ask(PARTS[0], LONG)).decoded
        others = [
            await far.ask(ASKED, LONG),
            await near.ask(ASKED, LONG, replace(BOTH, disclose=Disclosure.ANSWER)),
        ]
    assert [tokens(reply) for reply in others] == [tokens(oracle)] * 2
    assert all(counts(part).alone_from is None for each in others for part in each.parts)
    assert tokens(oracle)[0] == first.tokens, "the first part is a question of its own"
    second = oracle.parts[1].decoded.question
    assert (second.prompt, second.history) == (PARTS[1], ((PARTS[0], oracle.parts[0].text),))
    assert oracle.decoded.tokens == [*chain.from_iterable(tokens(oracle))]


@pytest.mark.slow
@pytest.mark.parametrize("how", [WAITING, FederatedSettings(block_tokens=4), SprinterSettings()])
async def test_other_modes_answer_in_parts_too(
    cloud: CloudProcess, model: LanguageModel, draft_model: LanguageModel, how: Settings
) -> None:
    async with connected_device(draft_model, None, cloud.wait_ready(), how) as device:
        reply = await device.ask(ASKED, replace(GREEDY, max_tokens=64))
    asked = [part.decoded.question for part in reply.parts]
    assert [each.prompt for each in asked] == PARTS[: len(asked)]
    if not isinstance(how, SprinterSettings):  # which is approximate
        assert tokens(reply) == [said_alone(model, each.prompt, each) for each in asked]
