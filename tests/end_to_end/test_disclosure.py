"""What leaves a real device at each level, as the device's trace and its ledger tell it."""

from dataclasses import replace
from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.bundled import questions
from dragonrt.experiments.cloud_process import CloudProcess
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.node.connections.endpoints import Address
from dragonrt.node.process.library import Library
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.service.preview import foresee
from dragonrt.traces.events import Disclosed, MessageSent
from dragonrt.traces.file import read_trace

from .conftest import SHORT, connected_device

OWN = next(each for each in questions() if each.kind == "private")
REDACTED = DragonSettings(disclose=Disclosure.REDACTED, codec="topk:64:residual")


@pytest.mark.slow
@pytest.mark.parametrize("level", Disclosure)
async def test_the_ledger_has_what_the_preview_named(
    cloud: CloudProcess, model: LanguageModel, library: Library, tmp_path: Path, level: Disclosure
) -> None:
    how, trace = replace(REDACTED, disclose=level), tmp_path / "trace"
    address = Address("127.0.0.1", cloud.wait_ready())
    asked = f"{OWN.text.rstrip('?')}, and who said so?"  # in two parts
    async with connected_device(model, library, address, how, trace) as device:
        conversation = device.conversation(SHORT)
        shown = (await foresee(conversation, asked))[0]
        reply = await conversation.ask(asked)
    told = [each.event for each in reply.answer.records if isinstance(each.event, Disclosed)]
    assert {each.message for each in told} >= {"open", "conclude"}
    assert all(map(shown.preview.foresees, told))
    assert shown.preview.bytes_of("question") == reply.ledger()["question_bytes"]
    assert {passage.file for passage in reply.answer.passages} <= {*shown.documents}
    assert shown.parts == 2
    assert ("distributions" in shown.preview.kinds) == (level is Disclosure.DRAFTS)


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
