"""No number of threads changes a token, in rows short and long."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

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
from dragonrt.service.chat import News
from dragonrt.service.cloud_process import CloudProcess, cloud_process
from dragonrt.traces.events import Rejoined

from .conftest import connected_device, counts, decides

SAID = " ".join(f"Ship {n} of the line has {n + 2} bells and a crew of {n + 9}." for n in range(24))
"""The first turn of a chat: later rows have more than 256 tokens, from where kernels differ."""
TALK = (SAID, "Why do ships have bells?", "And who rings them?")
ASKED = Question(max_tokens=12, documents=0, sampler=Sampler(0.8), seed=3)
WANDERING = replace(ASKED, sampler=Sampler(3.0), max_tokens=24)
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


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["dragon", "speculative"])
async def test_a_cloud_of_other_threads_resumes_the_text(
    clouds: dict[int, CloudProcess], mode: str
) -> None:
    name, (how, *_) = MODES[mode]  # of dragon the synchronous one: each token needs the cloud
    if isinstance(how, SpeculativeSettings):  # or the whole text may be on its way already
        how = replace(how, cloud_decodes=False, block_tokens=2)
    model = LanguageModel.load(name, "cpu", threads=1)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ExitStack() as stack:

        def start(threads: int) -> CloudProcess:
            options = ("--port", str(port), "--threads", str(threads))
            return stack.enter_context(cloud_process(*options))

        def replaced(news: News) -> None:
            if decides(news, 2):
                os.kill(running.pid, signal.SIGKILL)
                start(4)

        running = start(1)
        running.wait_ready()
        texts = []
        for at, on_news in ((clouds[1].wait_ready(), lambda news: None), (port, replaced)):
            async with connected_device(model, None, at, how) as device:
                talk = device.conversation(WANDERING)
                await talk.ask(SAID)
                reply = await talk.ask(TALK[1], on_news=on_news)
            assert counts(reply).alone_from is None
            texts.append(reply.decoded.tokens)
    assert any(isinstance(each.event, Rejoined) for each in reply.decoded.records)
    assert texts[0] == texts[1]
