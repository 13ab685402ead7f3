"""What leaves a real device at each level, as the device's trace and its ledger tell it."""

from dataclasses import replace
from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.bundled import questions
from dragonrt.control.scheduler import Aggregator
from dragonrt.experiments.cloud_process import CloudProcess
from dragonrt.modes.disclosure import Disclosure
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.endpoints import Address
from dragonrt.node.library import Library
from dragonrt.sampling.samplers import Sampler
from dragonrt.traces.events import MessageSent
from dragonrt.traces.file import read_trace

from .conftest import SHORT, DeviceAt, connected_device, counts, slow_link

OWN = next(each for each in questions() if each.kind == "private")
REDACTED = DragonSettings(disclose=Disclosure.REDACTED, codec="topk:64:residual")


@pytest.mark.slow
async def test_a_redacted_text_is_that_of_the_step_by_step_run_over_every_link(
    cloud: CloudProcess, device_at: DeviceAt
) -> None:
    port = cloud.wait_ready()
    step_by_step = replace(REDACTED, aggregator=Aggregator.SYNC)
    async with device_at(port) as near, device_at(port, emulate=slow_link(0.05, 0.03)) as far:
        for seed, temperature in enumerate((0.0, 0.8, 3.0)):
            question = replace(SHORT, seed=seed, sampler=Sampler(temperature))
            right = await near.ask(OWN.text, question, step_by_step)
            for device in (near, far):
                reply = await device.ask(OWN.text, question, REDACTED)
                assert reply.answer.tokens == right.answer.tokens
                assert counts(reply).alone_from is None, reply.answer.notices
            told = right.ledger()
            assert 0 < told["tokens_withheld"] < len(right.answer.tokens)


@pytest.mark.slow
@pytest.mark.parametrize("level", [Disclosure.ANSWER, Disclosure.REDACTED])
async def test_nothing_leaves_but_what_the_level_says(
    cloud: CloudProcess, model: LanguageModel, library: Library, tmp_path: Path, level: Disclosure
) -> None:
    how, trace = replace(REDACTED, disclose=level), tmp_path / "trace"
    address = Address("127.0.0.1", cloud.wait_ready())
    async with connected_device(model, library, address, how, trace) as device:
        conversation = device.conversation(SHORT)
        first = await conversation.ask(OWN.text)
        second = await conversation.ask("And then?")
    sent = {each.event.message for each in read_trace(trace) if isinstance(each.event, MessageSent)}
    assert sent <= {"open", "target", "conclude", "close", "ping"}
    told = first.ledger()
    assert told["distributions_sent"] == told["tokens_not_in_answer"] == 0
    assert told["tokens_sent"] + told["tokens_withheld"] == len(first.answer.tokens)
    assert told["evidence_bits"] > 3
    assert told["files"][0]["bits"] > 3
    history = second.ledger()["history_bytes"]
    whole = len((OWN.text + first.text).encode())
    assert history == whole if level is Disclosure.ANSWER else history < whole
