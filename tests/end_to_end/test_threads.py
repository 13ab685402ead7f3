"""No number of threads changes a token, in rows short and long."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.cloud_process import CloudProcess, cloud_process

from .conftest import connected_device, counts

SAID = " ".join(f"Ship {n} of the line has {n + 2} bells and a crew of {n + 9}." for n in range(24))
"""The first turn of a chat: later rows have more than 256 tokens, from where kernels differ."""
TALK = (SAID, "Why do ships have bells?", "And who rings them?")
ASKED = Question(max_tokens=12, documents=0, sampler=Sampler(0.8), seed=3)
SYNCHRONOUS = DragonSettings(on_loss="wait", aggregator=Aggregator.SYNC)
MODES: dict[str, tuple[str, list[Settings]]] = {
    "dragon": ("dragon-small", [SYNCHRONOUS, DragonSettings(on_loss="wait")]),
    "speculative": ("dragon-draft", [SpeculativeSettings(on_loss="wait")]),
    "federated": ("dragon-draft", [FederatedSettings(block_tokens=4)]),
    "sprinter": ("dragon-draft", [SprinterSettings(on_loss="wait")]),
}


@pytest.fixture(scope="module")
def clouds() -> Iterator[dict[int, CloudProcess]]:
    with ExitStack() as stack:
        yield {
            threads: stack.enter_context(cloud_process("--threads", str(threads)))
            for threads in (1, 2, 4)
        }


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_a_chat_is_the_same_at_every_number_of_threads(
    clouds: dict[int, CloudProcess], mode: str
) -> None:
    name, ways = MODES[mode]
    found = []
    for threads, cloud in clouds.items():
        model = LanguageModel.load(name, "cpu", threads=threads)
        assert len(model.backend.tokenizer.encode(SAID)) > 300
        for how in ways:
            async with connected_device(model, None, cloud.wait_ready(), how) as device:
                talk = device.conversation(ASKED)
                replies = [await talk.ask(text) for text in TALK]
            assert all(counts(reply).alone_from is None for reply in replies)
            found.append([reply.decoded.tokens for reply in replies])
    assert found == [found[0]] * len(found)
