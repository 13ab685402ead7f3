"""What leaves a real device: its ledger, its trace, and the bytes on the way to its cloud."""

from dataclasses import replace
from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.bundled import questions
from dragonrt.distributions import codec
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.node.process.library import Library
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.service.cloud_process import CloudProcess
from dragonrt.traces.events import MessageSent
from dragonrt.traces.file import read_trace
from scripts.campaign.liar import Read, messages

from .conftest import SHORT, connected_device, recording_proxy

OWN = next(each for each in questions() if each.kind == "private")
REDACTED = DragonSettings(disclose=Disclosure.REDACTED, codec="topk:64:residual")


CASES: dict[str, tuple[Settings, str]] = {
    **{level: (replace(REDACTED, disclose=level), "") for level in Disclosure},
    "drafts, padded": (replace(REDACTED, disclose=Disclosure.DRAFTS, traffic="padded"), ""),
    "speculative": (SpeculativeSettings(), "ids"),
    "speculative, points": (SpeculativeSettings(rule="rejection", codec="ksqs:8:40"), "ksqs:8:40"),
    "federated": (FederatedSettings(), "ids"),
}
"""Settings, and the codec of what the device sends unless it is that of REDACTED."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
async def test_the_ledger_says_what_passed_a_proxy_on_the_way(
    cloud: CloudProcess, model: LanguageModel, library: Library, tmp_path: Path, name: str
) -> None:
    (how, code), trace = CASES[name], tmp_path / "trace"
    async with recording_proxy(cloud.wait_ready()) as proxy:
        async with connected_device(model, library, proxy.port, how, trace) as device:
            talk = device.conversation(SHORT)
            before = device.connector.traffic().sent
            replies = [await talk.ask(asked) for asked in (OWN.text, "And then?")]
            most = device.connector.traffic().sent - before
        marker = device.connected.side.marker if name == Disclosure.REDACTED else ()
    seen = Read()
    for message in messages(bytes(proxy.up)):
        seen.take(message, codec(code or REDACTED.codec, model.vocabulary))
    ledgers = [reply.ledger for reply in replies]
    for kind, found in {
        "question_bytes": seen.question,
        "history_bytes": seen.history,
        "tokens_sent": seen.others(marker),
        "distributions_sent": seen.distributions,
        "documents_named": seen.documents,
    }.items():
        assert sum(ledger[kind] for ledger in ledgers) == found, kind
    assert (seen.opened, proxy.connections) == (2, 1)
    assert device.connector.traffic().sent == len(proxy.up)
    assert 0 < sum(reply.decoded.bytes_sent for reply in replies) <= most
    if name in (Disclosure.ANSWER, Disclosure.REDACTED):
        events = (each.event for each in read_trace(trace))
        sent = {event.message for event in events if isinstance(event, MessageSent)}
        assert sent <= {"open", "target", "conclude", "close", "ping"}
        first, second = ledgers
        assert first["distributions_sent"] == first["tokens_not_in_answer"] == 0
        assert first["tokens_sent"] + first["tokens_withheld"] == len(replies[0].decoded.tokens)
        assert first["evidence_bits"] > 3
        assert first["files"][0]["bits"] > 3
        whole, history = len((OWN.text + replies[0].text).encode()), second["history_bytes"]
        assert history == whole if name == Disclosure.ANSWER else history < whole
