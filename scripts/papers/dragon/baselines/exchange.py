"""The baselines' own messages: frames of msgpack arrays, a name and its fields, over any stream.

The frames are those of `dragonrt.wire`; the messages are not. The first one on each side is a
Greeting (the protocol, the model's fingerprint), which makes a normal side hang up. Both sides are
this program, so no message is checked beyond its name. A BaselineRequest has what is asked for and
all fields of `Asked`. It is answered with each Text (title, text, score) or StoredKv (safetensors,
score) and an End; with each Token; or with Drawn, the cloud's sequence, its h̃ and the distributions
along it, then, for the device's sequence in Score, Scored: the distributions along that. Sequences
are packed tokens, distributions float32 one after another, or for `scores` their log-probability
of the sequence, one float64.
"""

from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np

from dragonrt.errors import DragonError
from dragonrt.link.stream import Stream
from dragonrt.wire.encoding import FrameDecoder, encode_frame

LARGEST_FRAME = 64 * 1024 * 1024
"""One document's KV travels in one frame."""
PROTOCOL = "dragonrt baselines, an experiment"


class BaselineError(DragonError):
    """Two sides of a baseline that do not understand each other."""


def pack(tokens: Sequence[int]) -> bytes:
    """Return four bytes a token."""
    return np.array(tokens, "<u4").tobytes()


def unpack(packed: bytes) -> list[int]:
    """Invert `pack`."""
    return list(map(int, np.frombuffer(packed, "<u4")))


class Channel:
    """Messages over a stream, counted in bytes. Its methods raise LinkError if the link breaks."""

    def __init__(self, stream: Stream) -> None:
        self.wire_bytes = 0
        self._stream = stream
        self._frames = FrameDecoder(LARGEST_FRAME)

    async def send(self, kind: str, *fields: Any) -> None:
        """Send one message, waiting while the stream has too much unsent."""
        frame = encode_frame(msgpack.packb([kind, *fields]))
        self.wire_bytes += len(frame)
        self._stream.write(frame)
        await self._stream.drain()

    async def receive(self, *expected: str) -> list[Any]:
        """Return the next message, its name and its fields, which must be of one of these kinds.

        Raises BaselineError for another one or at the end of the stream.
        """
        while (body := self._frames.next_body()) is None:
            data = await self._stream.receive()
            if not data:
                raise BaselineError("the other side of the baseline has hung up")
            self.wire_bytes += len(data)
            self._frames.feed(data)
        message: list[Any] = msgpack.unpackb(body)
        if message[0] not in expected:
            raise BaselineError(f"a {message[0]} of the baselines may not come now")
        return message

    async def receive_until_end(self, expected: str) -> list[list[Any]]:
        """Return the fields of all messages of this kind up to the End."""
        received = []
        while (message := await self.receive(expected, "End"))[0] != "End":
            received.append(message[1:])
        return received

    async def greet(self, model: str) -> None:
        """Exchange greetings; BaselineError if the sides do not fit together."""
        await self.send("Greeting", PROTOCOL, model)
        if await self.receive("Greeting") != ["Greeting", PROTOCOL, model]:
            raise BaselineError("both sides of a baseline need the same model and dragonrt")

    async def close(self) -> None:
        self._stream.close()
        await self._stream.wait_closed()
