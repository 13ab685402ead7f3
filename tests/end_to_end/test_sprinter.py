"""Approximate verification for real: a small model and its verifier here, the target elsewhere."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.bundled import questions
from dragonrt.experiments.cloud_process import CloudProcess
from dragonrt.modes.question import Question
from dragonrt.modes.settings import SprinterSettings
from dragonrt.node.endpoints import Address
from dragonrt.sampling.samplers import Sampler

from .conftest import Alone, Device, connected_device

PROMPT = questions()[0].text
GREEDY = Question(max_tokens=24, documents=0)
"""Without documents: what is compared is the models."""
WAITING = SprinterSettings(on_loss="wait")


def said_alone(model: LanguageModel) -> list[int]:
    """What a model says by itself."""
    stops = model.answer_stops
    alone = Alone(model, replace(GREEDY, prompt=PROMPT))
    tokens: list[int] = []
    while len(tokens) < GREEDY.max_tokens and not set(tokens[-1:]) & set(stops):
        tokens.append(int(alone.p.argmax()))
        alone.take(tokens[-1])
    return tokens


def sprinting(
    model: LanguageModel, port: int, verifier: Path | None = None
) -> AbstractAsyncContextManager[Device]:
    """A device with the verifier of its model and the cloud's."""
    how = WAITING if verifier is None else replace(WAITING, verifier=str(verifier))
    return connected_device(model, None, Address("127.0.0.1", port), how)


@pytest.mark.slow
async def test_the_threshold_leads_from_the_drafts_text_to_the_targets(
    cloud: CloudProcess, model: LanguageModel, draft_model: LanguageModel
) -> None:
    async with sprinting(draft_model, cloud.wait_ready()) as device:
        usual = device.connected.settings
        assert isinstance(usual, SprinterSettings)
        assert usual.threshold is not None, "the verifier's own"
        never, always = [
            await device.ask(PROMPT, GREEDY, replace(usual, threshold=threshold))
            for threshold in (0.0, 1.0)
        ]
        warm = replace(GREEDY, sampler=Sampler(1.0), seed=5)
        some, again = [await device.ask(PROMPT, warm) for _ in range(2)]
    assert never.answer.tokens == said_alone(draft_model)
    assert never.statistics()["target_calls"] == 0
    assert (
        never.statistics()["unread"] == never.statistics()["unverified"] == len(never.answer.tokens)
    )
    assert always.answer.tokens == said_alone(model)
    assert always.statistics()["unverified"] == 0
    assert always.statistics()["tokens_per_target_call"] == 1.0
    assert some.answer.tokens == again.answer.tokens, "a function of the seed"
    numbers = some.statistics()
    assert numbers["target_calls"] + numbers["unverified"] == numbers["tokens"]
    assert some.to_json()["approximate"] is True
