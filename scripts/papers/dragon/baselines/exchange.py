"""What the baselines' two sides say to each other: frames of msgpack arrays, over any stream.

The frames are those of `dragonrt.wire`; the messages are not. The first one on each side is a
Greeting, which is not a message of the normal protocol and makes a normal side refuse.
"""

import struct
from collections.abc import Sequence
from typing import Any

import msgpack

from dragonrt.errors import DragonError
from dragonrt.link.stream import Stream
from dragonrt.wire.frames import FrameDecoder, encode_frame

LARGEST_FRAME = 64 * 1024 * 1024
"""One document's KV travels in one frame."""
PROTOCOL = "dragonrt baselines, an experiment"
KINDS: dict[str, list[type]] = {
    "Greeting": [str, str],  # the protocol, the fingerprint of the model
    "BaselineRequest": [str, str, int, int, float, int],  # what is asked for, and of `Asked` all
    "Text": [str, str, float],  # a retrieved document: title, text, score
    "StoredKv": [bytes, float],  # its keys and values as safetensors, score
    "End": [],  # of documents
    "Token": [int],  # of an answer that the cloud makes alone
    "Drawn": [bytes, float, bytes],  # the cloud's sequence, its h̃, and what its model says along it
    "Score": [bytes],  # the device's sequence, for the cloud to score
    "Scored": [bytes],  # what the cloud's model says along that
}
"""Every message with the types of its fields. Sequences are packed tokens. What is said along one
is all distributions, float32 one after another, or its log-probability, one float64."""


class BaselineError(DragonError):
    """Two sides of a baseline that do not understand each other."""


def pack(tokens: Sequence[int]) -> bytes:
    """Return four bytes a token."""
    return struct.pack(f"<{len(tokens)}I", *tokens)


def unpack(packed: bytes) -> list[int]:
    """Invert `pack`; raises BaselineError for another length."""
    if len(packed) % 4:
        raise BaselineError("packed tokens must be four bytes each")
    return list(struct.unpack(f"<{len(packed) // 4}I", packed))


def encode(kind: str, *fields: Any) -> bytes:
    """Return the body of a frame: the message's name and its fields."""
    return bytes(msgpack.packb([kind, *fields]))


def decode(body: bytes) -> tuple[str, list[Any]]:
    """Return the message in a frame; raises BaselineError for anything else."""
    try:
        kind, *fields = msgpack.unpackb(body, max_array_len=16, max_map_len=0, max_ext_len=0)
        if list(map(type, fields)) == KINDS[kind]:
            return kind, fields
    except (ValueError, TypeError, KeyError, msgpack.UnpackException):
        pass
    raise BaselineError("what came is no message of the baselines")


class Channel:
    """Messages over a stream, counted in bytes. Its methods raise LinkError if the link breaks."""

    def __init__(self, stream: Stream) -> None:
        self.bytes_sent = 0
        self.bytes_received = 0
        self._stream = stream
        self._frames = FrameDecoder(LARGEST_FRAME)

    async def send(self, kind: str, *fields: Any) -> None:
        """Send one message, waiting while the stream has too much unsent."""
        frame = encode_frame(encode(kind, *fields))
        self.bytes_sent += len(frame)
        self._stream.write(frame)
        await self._stream.drain()

    async def receive(self, expected: str) -> list[Any]:
        """Return the fields of the next message, which must be of this kind.

        Raises BaselineError for another one or at the end of the stream.
        """
        kind, fields = await self._next()
        if kind != expected:
            raise BaselineError(f"a {kind} of the baselines may not come now")
        return fields

    async def receive_until_end(self, expected: str) -> list[list[Any]]:
        """Return all messages of this kind up to the End; BaselineError as in `receive`."""
        received: list[list[Any]] = []
        while (message := await self._next())[0] != "End":
            if message[0] != expected:
                raise BaselineError(f"a {message[0]} of the baselines may not come now")
            received.append(message[1])
        return received

    async def _next(self) -> tuple[str, list[Any]]:
        while (body := self._frames.next_body()) is None:
            data = await self._stream.receive()
            if not data:
                raise BaselineError("the other side of the baseline has hung up")
            self.bytes_received += len(data)
            self._frames.feed(data)
        return decode(body)

    async def greet(self, model: str) -> None:
        """Exchange greetings; BaselineError if the sides do not fit together."""
        await self.send("Greeting", PROTOCOL, model)
        if await self.receive("Greeting") != [PROTOCOL, model]:
            raise BaselineError("both sides of a baseline need the same model and dragonrt")

    async def close(self) -> None:
        """End the stream."""
        self._stream.close()
        await self._stream.wait_closed()
