"""Approximate verification for real: a small model and its verifier here, the target elsewhere."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from dragonrt.bundled import questions
from dragonrt.chat.conversation import Conversation, Reply, stop_tokens
from dragonrt.control.verifier import Verifier
from dragonrt.errors import DragonError
from dragonrt.experiments.cloud_process import CloudProcess
from dragonrt.language.model import LanguageModel
from dragonrt.runtime import main as programs
from dragonrt.runtime.draft import Line, start_hash
from dragonrt.runtime.endpoints import Address
from dragonrt.runtime.modes.blocks import Answer
from dragonrt.runtime.modes.sprinter import SprinterPlan, beginning
from dragonrt.runtime.modes.sprinter.pairing import verifier_of
from dragonrt.runtime.process import SideSettings, local_side
from dragonrt.sampling.samplers import Sampler

QUESTION = questions()[0].text
GREEDY = SprinterPlan(seed=0, sampler=Sampler(0.0), max_tokens=24, documents=0)
"""Without documents: what is compared is the models."""


@pytest.fixture(scope="module")
def draft_model() -> LanguageModel:
    return LanguageModel.load("dragon-draft", "cpu")


async def greedy(model: LanguageModel) -> list[int]:
    """What a model says by itself."""
    stops = stop_tokens(model, model.prompt.stops)
    async with local_side(SideSettings("cloud", device="cpu"), model, None) as side:
        predictor = (await side.prepare_predictor(QUESTION, (), GREEDY)).model
        line = Line(start_hash(GREEDY.seed))
        while len(line) < GREEDY.max_tokens and not set(line.tokens[-1:]) & set(stops):
            said = (await predictor.predict(line, len(line), len(line)))[0]
            line.append(int(said.p.argmax()))
    return line.tokens


@asynccontextmanager
async def sprinting(
    model: LanguageModel, port: int, given: Verifier | None = None
) -> AsyncIterator[Conversation[SprinterPlan, Answer]]:
    """A device with the verifier of its model and the cloud's."""
    address = Address("127.0.0.1", port)
    settings = SideSettings("device", device="cpu")
    async with programs.device(settings, model, None, address) as (side, connector):
        assert connector.peer is not None
        cloud = connector.peer.connection.peer
        assert cloud is not None
        verifier = verifier_of(model.fingerprint, cloud.weights, given)
        yield Conversation(model, GREEDY, beginning(side, connector, verifier, "wait"), 0)


async def ask(
    conversation: Conversation[SprinterPlan, Answer], plan: SprinterPlan
) -> Reply[Answer]:
    """The question, in a conversation of its own."""
    conversation.plan, conversation.seed, conversation.history = plan, plan.seed, []
    return await conversation.ask(QUESTION)


@pytest.mark.slow
async def test_the_threshold_leads_from_the_drafts_text_to_the_targets(
    cloud: CloudProcess, model: LanguageModel, draft_model: LanguageModel
) -> None:
    async with sprinting(draft_model, cloud.wait_ready()) as conversation:
        never = await ask(conversation, replace(GREEDY, threshold=0.0))
        always = await ask(conversation, replace(GREEDY, threshold=1.0))
        warm = replace(GREEDY, sampler=Sampler(1.0), seed=5)
        some, again = [await ask(conversation, warm) for _ in range(2)]
    assert never.answer.tokens == await greedy(draft_model)
    assert never.statistics()["target_calls"] == 0
    assert (
        never.statistics()["unread"] == never.statistics()["unverified"] == len(never.answer.tokens)
    )
    assert always.answer.tokens == await greedy(model)
    assert always.statistics()["unverified"] == 0
    assert always.statistics()["tokens_per_target_call"] == 1.0
    assert some.answer.tokens == again.answer.tokens, "a function of the seed"
    counts = some.statistics()
    assert counts["target_calls"] + counts["unverified"] == counts["tokens"]
    assert some.to_json()["approximate"] is True


@pytest.mark.slow
async def test_a_verifier_of_other_models_is_refused(
    cloud: CloudProcess, model: LanguageModel, draft_model: LanguageModel
) -> None:
    port = cloud.wait_ready()
    fitting = Verifier.for_pair(draft_model.fingerprint, model.fingerprint, "sprinter")
    with pytest.raises(DragonError, match="trained for the draft model dragon-draft"):
        async with sprinting(model, port, fitting):
            pass
    other = replace(fitting, pair=replace(fitting.pair, target_fingerprint="other"))
    with pytest.raises(DragonError, match="trained for the target"):
        async with sprinting(draft_model, port, other):
            pass
    with pytest.raises(DragonError, match="no sprinter verifier for these two models"):
        async with sprinting(model, port):
            pass
