"""The ledger of a real device, and the bytes that a proxy on the way to its cloud recorded."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.distributions import codec
from dragonrt.experiments.cloud_process import CloudProcess
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.node.connections.endpoints import Address
from dragonrt.node.process.library import Library
from dragonrt.privacy.disclosure import Disclosure
from scripts.campaign.recorded import Read, messages

from .conftest import SHORT, connected_device

CASES: dict[str, tuple[Settings, str]] = {
    **{
        f"{level}{', padded' if pad else ''}": (
            DragonSettings(disclose=level, pad=pad, codec="topk:64:residual"),
            "topk:64:residual",
        )
        for level in Disclosure
        for pad in (False, True)
    },
    "speculative": (SpeculativeSettings(), "ids"),
    "speculative, points": (SpeculativeSettings(rule="rejection", codec="ksqs:8:40"), "ksqs:8:40"),
    "federated": (FederatedSettings(), "ids"),
}


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[tuple[int, list[bytearray]]]:
    """A TCP proxy on a port, and what passed to that of the cloud, by connection."""
    tapes: list[bytearray] = []

    async def carry(
        source: asyncio.StreamReader, to: asyncio.StreamWriter, tape: bytearray
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                tape += data
                to.write(data)
                await to.drain()
        to.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up, down = await asyncio.open_connection("127.0.0.1", port)
        tapes.append(bytearray())
        await asyncio.gather(carry(reader, down, tapes[-1]), carry(up, writer, bytearray()))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], tapes


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
async def test_the_ledger_says_what_passed_the_proxy(
    cloud: CloudProcess, model: LanguageModel, library: Library, name: str
) -> None:
    how, code = CASES[name]
    async with proxy_to(cloud.wait_ready()) as (port, tapes):
        address = Address("127.0.0.1", port)
        async with connected_device(model, library, address, how) as device:
            talk = device.conversation(SHORT)
            before = device.connector.traffic().sent
            replies = [await talk.ask(asked) for asked in ("When does Tom come?", "Why so late?")]
            most = device.connector.traffic().sent - before
        marker = device.connected.side.marker if "redacted" in name else ()
    (tape,) = tapes
    seen = Read()
    for message in messages(bytes(tape)):
        seen.take(message, codec(code, model.vocabulary))
    ledgers = [reply.ledger() for reply in replies]
    for kind, found in {
        "question_bytes": seen.question,
        "history_bytes": seen.history,
        "tokens_sent": seen.others(marker),
        "distributions_sent": seen.distributions,
        "documents_named": seen.documents,
    }.items():
        assert sum(ledger[kind] for ledger in ledgers) == found, kind
    assert seen.opened == 2
    assert device.connector.traffic().sent == len(tape)
    assert 0 < sum(reply.answer.bytes_sent for reply in replies) <= most
