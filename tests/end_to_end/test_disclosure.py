"""What leaves a real device at each level, as the device's trace and its ledger tell it."""

from dataclasses import replace
from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.bundled import questions
from dragonrt.experiments.cloud_process import CloudProcess
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.node.endpoints import Address
from dragonrt.node.library import Library
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.traces.events import MessageSent
from dragonrt.traces.file import read_trace

from .conftest import SHORT, connected_device

OWN = next(each for each in questions() if each.kind == "private")
REDACTED = DragonSettings(disclose=Disclosure.REDACTED, codec="topk:64:residual")


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
