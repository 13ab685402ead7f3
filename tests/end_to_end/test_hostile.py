"""Strangers at the socket of a real cloud: each is told why it is refused, and nobody else suffers.

While all of them are at it, a good device asks and gets the text that it gets when alone.
"""

import asyncio
import itertools
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from dragonrt.experiments.cloud_process import CloudProcess
from dragonrt.wire.connection import Connection, State
from dragonrt.wire.encoding import decode, encode
from dragonrt.wire.frames import FrameDecoder, encode_frame
from dragonrt.wire.limits import NONCE_BYTES
from dragonrt.wire.messages import (
    PROTOCOL_VERSION,
    Goodbye,
    Hello,
    Message,
    Open,
    Ping,
    Pong,
)
from dragonrt.wire.reasons import Reason
from dragonrt.wire.values import pack

from .conftest import BOTH, SHORT, Device, DeviceAt, counts

TIME_LIMIT_S = 60.0
"""Only stops a test that hangs."""


@pytest.fixture
async def good(cloud: CloudProcess, device_at: DeviceAt) -> AsyncIterator[Device]:
    """A device that behaves."""
    async with device_at(cloud.wait_ready()) as device:
        yield device


@pytest.fixture
def hello(good: Device) -> Hello:
    """What an honest device says of itself."""
    model = good.connected.side.model
    return Hello(
        PROTOCOL_VERSION,
        bytes(NONCE_BYTES),
        "device",
        model.tokenizer_fingerprint,
        model.vocabulary,
        "stranger",
        "stranger",
    )


ASKED = replace(SHORT, prompt="What do you need to make lemon cake?")
OPEN = Open(1, "dragon", pack(ASKED), pack(BOTH))


HOSTS = itertools.cycle(f"127.0.1.{number}" for number in range(1, 250))
"""A loopback address for each stranger: a cloud says few lines a second of one host."""


class Stranger:
    """A raw socket to the cloud."""

    def __init__(self, port: int) -> None:
        source = (next(HOSTS), 0) if sys.platform == "linux" else None
        self.socket = socket.create_connection(("127.0.0.1", port), TIME_LIMIT_S, source)
        self.name = "{}:{}".format(*self.socket.getsockname())
        self._frames = FrameDecoder(2**22)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, *messages: Message) -> None:
        self.send(b"".join(encode_frame(encode(message)) for message in messages))

    def shake(self, hello: Hello) -> None:
        """The handshake of an honest device."""
        connection = Connection("device", hello)
        self.send(connection.data_to_send())
        while connection.state is not State.OPEN:
            connection.receive_data(encode_frame(self._body()))
            self.send(connection.data_to_send())

    def hear(self, *kinds: type[Message]) -> Message:
        """The next message of one of these kinds."""
        while True:
            message = decode(self._body())
            if isinstance(message, kinds):
                return message
            if isinstance(message, Ping):
                self.say(Pong(message.sequence, message.time_us, 0))

    def hears_the_end(self) -> None:
        """The cloud closes the connection."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass

    def _body(self) -> bytes:
        while (body := self._frames.next_body()) is None:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError("the cloud closed the connection without a word")
            self._frames.feed(data)
        return body


@contextmanager
def stranger_at(cloud: CloudProcess) -> Iterator[Stranger]:
    stranger = Stranger(cloud.wait_ready())
    with closing(stranger.socket):
        yield stranger


async def the_cloud_says(cloud: CloudProcess, pattern: str) -> None:
    """Wait until the cloud has written a line that matches."""
    async with asyncio.timeout(TIME_LIMIT_S):
        while not any(re.search(pattern, line) for line in cloud.lines):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def all_is_well(good: Device) -> None:
    """The good device gets its answer from both sides."""
    reply = await good.ask("What do you need to make lemon cake?")
    assert "three lemons" in reply.text
    assert counts(reply).alone_from is None


GOODBYES: list[tuple[str, Callable[[Hello], bytes], Reason]] = [
    ("http", lambda hello: b"GET / HTTP/1.1\r\nHost: cloud\r\n\r\n", Reason.MALFORMED),
    ("bomb", lambda hello: (2**31 | 8).to_bytes(4, "big") + b"\xff" * 8, Reason.TOO_LARGE),
    ("vocabulary", lambda hello: said(replace(hello, vocabulary=7)), Reason.VOCABULARY),
    ("no hello", lambda hello: said(OPEN), Reason.OUT_OF_ORDER),
    ("hello twice", lambda hello: said(hello) + said(hello), Reason.OUT_OF_ORDER),
]


def said(message: Message) -> bytes:
    return encode_frame(encode(message))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "reason"), [case[1:] for case in GOODBYES], ids=[case[0] for case in GOODBYES]
)
async def test_a_stranger_is_refused_with_a_reason_on_both_sides(
    cloud: CloudProcess,
    good: Device,
    hello: Hello,
    data: Callable[[Hello], bytes],
    reason: Reason,
) -> None:
    with stranger_at(cloud) as stranger:
        stranger.send(data(hello))
        goodbye = await asyncio.to_thread(stranger.hear, Goodbye)
        assert isinstance(goodbye, Goodbye)
        assert goodbye.reason is reason
        assert goodbye.text
        await asyncio.to_thread(stranger.hears_the_end)
        await the_cloud_says(cloud, f"refused {stranger.name}: .")
    await all_is_well(good)


@pytest.mark.slow
async def test_half_open_and_silent_strangers_do_not_stop_others(
    cloud: CloudProcess, good: Device, hello: Hello
) -> None:
    """One says nothing, one half a frame, one closes its half, one vanishes within a session."""
    with (
        stranger_at(cloud) as silent,
        stranger_at(cloud) as half,
        stranger_at(cloud) as shut,
        stranger_at(cloud) as gone,
        stranger_at(cloud) as asking,
        stranger_at(cloud) as quiet,
    ):
        quiet.socket.close()
        half.send(said(hello)[:9])
        shut.send(said(hello)[:9])
        shut.socket.shutdown(socket.SHUT_WR)
        for stranger in (gone, asking):
            await asyncio.to_thread(stranger.shake, hello)
            stranger.say(OPEN)
        linger = b"\x01\0\0\0\0\0\0\0"  # closing sends a reset
        gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        gone.socket.close()
        await all_is_well(good)
        await the_cloud_says(cloud, f"refused {shut.name}: the other side closed")
        await the_cloud_says(cloud, f"{gone.name} left: .*(broke|closed)")
        for stranger, why in ((silent, "said nothing"), (half, "did not complete the handshake")):
            await asyncio.to_thread(stranger.hears_the_end)
            await the_cloud_says(cloud, f"refused {stranger.name}: .*{why}")
        assert not any(f"{quiet.name}: " in line for line in cloud.lines), "as balancers look"
        await all_is_well(good)
