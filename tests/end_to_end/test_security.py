"""With a shared key, with or without TLS, nothing that is said can be read on the way."""

import asyncio
import re
from pathlib import Path

import pytest

from dragonrt.bundled import documents
from dragonrt.link.tls import client_context
from dragonrt.service.cloud_process import CloudProcess, cloud_process
from tests.certificates import make_certificates

from .conftest import DeviceAt, counts, recording_proxy

KEY = b"0123456789abcdef0123456789abcdef"
PROMPT = "What do you need to make lemon cake?"


def words(text: str) -> set[bytes]:
    """The words of a text by which it could be recognised."""
    return {word.encode() for word in re.findall(r"[A-Za-z]{5,}", text)}


@pytest.mark.slow
@pytest.mark.parametrize("protection", ["none", "key", "key and tls"])
async def test_nothing_that_is_said_can_be_read_on_the_way(
    cloud: CloudProcess, cloud_index: Path, device_at: DeviceAt, tmp_path: Path, protection: str
) -> None:
    cloud.wait_ready()  # its index is complete
    options, key, tls = ["--index", str(cloud_index)], None, None
    if "key" in protection:
        (tmp_path / "key").write_bytes(KEY + b"\n")
        options, key = [*options, "--key-file", str(tmp_path / "key")], KEY
    if "tls" in protection:
        make_certificates(tmp_path)
        own = ("--tls-cert", str(tmp_path / "cloud.pem"), "--tls-key", str(tmp_path / "cloud.key"))
        options += own
        tls = client_context(tmp_path / "authority.pem")
    with cloud_process(*options) as process:
        port = await asyncio.to_thread(process.wait_ready)
        async with (
            recording_proxy(port) as recording,
            device_at(recording.port, key=key, tls=tls) as device,
        ):
            reply = await device.ask(PROMPT)
    assert "three lemons" in reply.text
    assert counts(reply).alone_from is None
    said: set[bytes] = set()
    for side in ("device", "cloud"):
        for path in documents(side).glob("*.*"):
            said |= words(path.stem + " " + path.read_text("utf-8"))
    assert min(len(recording.up), len(recording.down)) > 1000
    wire = bytes(recording.up + recording.down)
    read = {word for word in said | words(PROMPT) | words(reply.text) if word in wire}
    assert len(said) > 500
    if key is None:
        assert words(PROMPT) <= read
    else:
        assert read == set()
        assert b"dragon" not in wire
