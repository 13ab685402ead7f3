"""A question of two parts for real: each part's text is that of the token-by-token run."""

from dataclasses import replace
from itertools import chain

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.bundled import questions
from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.settings import Settings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.answer import Answer
from dragonrt.service.cloud_process import CloudProcess

from .conftest import BOTH, SHORT, DeviceAt, connected_device, counts, slow_link
from .test_speculative import GREEDY, WAITING, said_alone

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
