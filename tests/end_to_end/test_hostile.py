"""Strangers at the socket of a real cloud: each hears why, and nobody else suffers."""

import asyncio
import re
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest
from msgspec import structs

from dragonrt.experiments.cloud_process import CloudProcess
from dragonrt.wire.encoding import decode, encode
from dragonrt.wire.frames import FrameDecoder, encode_frame
from dragonrt.wire.limits import NONCE_BYTES
from dragonrt.wire.messages import PROTOCOL_VERSION, Goodbye, Hello, Message, Open
from dragonrt.wire.reasons import Reason
from dragonrt.wire.values import pack

from .conftest import BOTH, SHORT, DeviceAt, counts

TIME_LIMIT_S = 60.0
"""Only stops a test that hangs."""
QUESTION = "What do you need to make lemon cake?"
OPEN = Open(1, "dragon", pack(replace(SHORT, prompt=QUESTION)), pack(BOTH))


def framed(message: Message) -> bytes:
    return encode_frame(encode(message))


CASES: tuple[tuple[Callable[[Hello], bytes], Reason], ...] = (
    (lambda hello: b"GET / HTTP/1.1\r\nHost: cloud\r\n\r\n", Reason.MALFORMED),
    (lambda hello: (2**31 | 8).to_bytes(4, "big") + b"\xff" * 8, Reason.TOO_LARGE),
    (lambda hello: framed(structs.replace(hello, vocabulary=7)), Reason.VOCABULARY),
    (lambda hello: framed(OPEN), Reason.OUT_OF_ORDER),
    (lambda hello: framed(hello) + framed(hello), Reason.OUT_OF_ORDER),
)


def goodbye_to(stranger: socket.socket, data: bytes) -> Goodbye:
    """What the cloud replies before it closes the connection."""
    frames, goodbye = FrameDecoder(2**22), None
    stranger.sendall(data)
    while received := stranger.recv(65536):
        frames.feed(received)
        while (body := frames.next_body()) is not None:
            if isinstance(message := decode(body), Goodbye):
                goodbye = message
    assert goodbye is not None
    return goodbye


@pytest.mark.slow
async def test_a_stranger_is_rejected_with_a_reason_on_both_sides(
    cloud: CloudProcess, device_at: DeviceAt
) -> None:
    port = cloud.wait_ready()
    async with device_at(port) as good:
        model = good.connected.side.model
        tokenizer, nonce = model.tokenizer_fingerprint, bytes(NONCE_BYTES)
        hello = Hello(PROTOCOL_VERSION, nonce, "device", tokenizer, model.vocabulary, "x", "x")
        for data, reason in CASES:
            with closing(socket.create_connection(("127.0.0.1", port), TIME_LIMIT_S)) as stranger:
                name = "{}:{}".format(*stranger.getsockname())
                goodbye = await asyncio.to_thread(goodbye_to, stranger, data(hello))
            assert goodbye.reason is reason
            assert goodbye.text
            await asyncio.to_thread(cloud.wait_line, re.compile(f"refused {name}: ."))
        reply = await good.ask(QUESTION)
        assert "three lemons" in reply.text
        assert counts(reply).alone_from is None
