"""A cloud with a shared key and TLS: who has both is served, others are told what is wrong."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dragonrt.bundled import documents
from dragonrt.experiments.cloud_process import CloudProcess, cloud_process
from dragonrt.link.authority import make_certificates
from dragonrt.link.tls import client_context

from .conftest import DeviceAt, counts

TIME_LIMIT_S = 60.0
"""Only stops a test that hangs."""
KEY, WRONG_KEY = b"0123456789abcdef0123456789abcdef", b"another-key-of-thirty-two-bytes!"


@dataclass(frozen=True)
class Papers:
    """Files of an authority, of a server certificate for 127.0.0.1, and of two keys."""

    authority: Path
    certificate: Path
    private_key: Path
    key: Path
    wrong_key: Path


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    place = tmp_path_factory.mktemp("papers")
    make_certificates(place, ["127.0.0.1"], datetime.now(UTC), 90)
    (place / "key").write_bytes(KEY + b"\n")
    (place / "wrong").write_bytes(WRONG_KEY)
    names = ("authority.pem", "cloud.pem", "cloud.key", "key", "wrong")
    return Papers(*(place / name for name in names))


@pytest.fixture(scope="module")
def guarded(cloud: CloudProcess, cloud_index: Path, papers: Papers) -> Iterator[CloudProcess]:
    """A cloud that wants the key and speaks TLS; its index is the other one's."""
    cloud.wait_ready()
    options = ("--index", str(cloud_index), "--key-file", str(papers.key))
    tls = ("--tls-cert", str(papers.certificate), "--tls-key", str(papers.private_key))
    with cloud_process(*options, *tls) as process:
        process.wait_ready()
        yield process


@pytest.mark.slow
async def test_the_right_key_over_tls_is_served(
    guarded: CloudProcess, papers: Papers, device_at: DeviceAt
) -> None:
    tls = client_context(papers.authority)
    async with device_at(guarded.wait_ready(), key=KEY, tls=tls) as device:
        reply = await device.ask("What do you need to make lemon cake?")
    assert "three lemons" in reply.text
    assert counts(reply).alone_from is None


class Recording:
    """All that went over a proxy, and the port of it."""

    def __init__(self) -> None:
        self.port = 0
        self.up, self.down = bytearray(), bytearray()


@asynccontextmanager
async def recording_proxy(port: int) -> AsyncIterator[Recording]:
    """Passes bytes on to a loopback port, and keeps them."""
    recording = Recording()
    flows: set[asyncio.Task[None]] = set()

    async def flow(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
    ) -> None:
        while data := await reader.read(65536):
            kept += data
            writer.write(data)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cloud_reader, cloud_writer = await asyncio.open_connection("127.0.0.1", port)
        flows.add(asyncio.create_task(flow(reader, cloud_writer, recording.up)))
        flows.add(asyncio.create_task(flow(cloud_reader, writer, recording.down)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        recording.port = server.sockets[0].getsockname()[1]
        yield recording
        await asyncio.gather(*flows)


def words(text: str) -> set[bytes]:
    """The words of a text by which it could be recognised."""
    return {word.encode() for word in re.findall(r"[A-Za-z]{5,}", text)}


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [True, False])
async def test_with_a_key_nothing_that_is_said_can_be_read_on_the_way(
    cloud: CloudProcess, cloud_index: Path, device_at: DeviceAt, papers: Papers, encrypted: bool
) -> None:
    prompt = "What do you need to make lemon cake?"
    with ExitStack() as stack:
        port = cloud.wait_ready()  # its index is complete
        if encrypted:
            options = ("--index", str(cloud_index), "--key-file", str(papers.key))
            port = stack.enter_context(cloud_process(*options)).wait_ready()
        key = KEY if encrypted else None
        async with (
            recording_proxy(port) as recording,
            device_at(recording.port, key=key) as device,
        ):
            reply = await device.ask(prompt)
    said: set[bytes] = set()
    for side in ("device", "cloud"):
        for path in documents(side).glob("*.*"):
            said |= words(path.stem + " " + path.read_text("utf-8"))
    assert counts(reply).alone_from is None
    assert min(len(recording.up), len(recording.down)) > 1000
    wire = bytes(recording.up + recording.down)
    read = {word for word in said | words(prompt) | words(reply.text) if word in wire}
    assert len(said) > 500
    if encrypted:
        assert read == set()
        assert b"dragon" not in wire
    else:
        assert words(prompt) <= read
