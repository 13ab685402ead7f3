"""What the baselines' two sides say to each other: frames of msgpack arrays, over any stream.

The frames are those of `dragonrt.wire`; the messages are not. The first one on each side is a
Greeting, which is not a message of the normal protocol and makes a normal side refuse.
"""

import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any, TypeVar

import msgpack

from dragonrt.errors import DragonError
from dragonrt.link.stream import Stream
from dragonrt.wire.frames import FrameDecoder, encode_frame

LARGEST_FRAME = 64 * 1024 * 1024
"""One document's KV travels in one frame."""

PROTOCOL = "dragonrt baselines, an experiment"


class BaselineError(DragonError):
    """Two sides of a baseline that do not understand each other."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """Both sides' first message: what they speak, and the fingerprint of the model and its KV."""

    protocol: str
    model: str


@dataclass(frozen=True, slots=True)
class BaselineRequest:
    """The device asks for `what`: "texts", "kv", "answer" or "sequence".

    `documents` are to be retrieved for `question`; an answer or sequence has `tokens` tokens.
    """

    what: str
    question: str
    documents: int
    seed: int
    temperature: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Text:
    """One retrieved document, in the clear."""

    title: str
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class StoredKv:
    """One retrieved document's keys and values, as safetensors."""

    data: bytes
    score: float


@dataclass(frozen=True, slots=True)
class End:
    """No more documents follow."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer that the cloud makes alone."""

    token: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """The cloud's own sequence: packed tokens, its h̃, and what the cloud's model says along it.

    `said` is all distributions, float32 one after another, or where scores were asked for the
    sequence's log-probability, one float64.
    """

    tokens: bytes
    relevance: float
    said: bytes


@dataclass(frozen=True, slots=True)
class Score:
    """The device's own sequence, packed, for the cloud to score."""

    tokens: bytes


@dataclass(frozen=True, slots=True)
class Scored:
    """What the cloud's model says along the device's sequence, in the same form."""

    said: bytes


Message = Greeting | BaselineRequest | Text | StoredKv | End | Token | Drawn | Score | Scored
M = TypeVar("M", bound=Message)

_KINDS: tuple[type[Message], ...] = (
    Greeting,
    BaselineRequest,
    Text,
    StoredKv,
    End,
    Token,
    Drawn,
    Score,
    Scored,
)


def pack(tokens: Sequence[int]) -> bytes:
    """Four bytes a token."""
    return struct.pack(f"<{len(tokens)}I", *tokens)


def unpack(packed: bytes) -> list[int]:
    """The inverse of `pack`; BaselineError for another length."""
    if len(packed) % 4:
        raise BaselineError("packed tokens must be four bytes each")
    return list(struct.unpack(f"<{len(packed) // 4}I", packed))


def encode(message: Message) -> bytes:
    """The body of a frame: the message's name and its fields."""
    return bytes(msgpack.packb([type(message).__name__, *astuple(message)]))


def decode(body: bytes) -> Message:
    """The message in a frame; BaselineError for anything else."""
    try:
        values: Any = msgpack.unpackb(body, max_array_len=16, max_map_len=0, max_ext_len=0)
    except (ValueError, msgpack.UnpackException) as error:
        raise BaselineError(f"what came is no message of the baselines: {error}") from None
    name = values[0] if isinstance(values, list) and values else None
    for kind in _KINDS:
        if kind.__name__ == name:
            types = [field.type for field in fields(kind)]
            if [type(value) for value in values[1:]] != types:
                raise BaselineError(f"a {name} of the baselines has other fields than these")
            return kind(*values[1:])
    raise BaselineError("what came is no message of the baselines")


class Channel:
    """Messages over a stream, counted in bytes. Its methods raise LinkError if the link breaks."""

    def __init__(self, stream: Stream) -> None:
        self.bytes_sent = 0
        self.bytes_received = 0
        self._stream = stream
        self._frames = FrameDecoder(LARGEST_FRAME)

    async def send(self, message: Message) -> None:
        """Send one message, waiting while the stream has too much unsent."""
        frame = encode_frame(encode(message))
        self.bytes_sent += len(frame)
        self._stream.write(frame)
        await self._stream.drain()

    async def receive(self, expected: type[M]) -> M:
        """The next message, which must be of this kind.

        Raises BaselineError for another one or at the end of the stream.
        """
        message = await self._next()
        if not isinstance(message, expected):
            raise BaselineError(f"a {type(message).__name__} of the baselines may not come now")
        return message

    async def receive_until_end(self, expected: type[M]) -> list[M]:
        """All messages of this kind up to the End behind them; BaselineError as in `receive`."""
        received: list[M] = []
        while not isinstance(message := await self._next(), End):
            if not isinstance(message, expected):
                raise BaselineError(f"a {type(message).__name__} of the baselines may not come now")
            received.append(message)
        return received

    async def _next(self) -> Message:
        while (body := self._frames.next_body()) is None:
            data = await self._stream.receive()
            if not data:
                raise BaselineError("the other side of the baseline has hung up")
            self.bytes_received += len(data)
            self._frames.feed(data)
        return decode(body)

    async def greet(self, model: str) -> None:
        """Exchange greetings; BaselineError if the sides do not fit together."""
        await self.send(Greeting(PROTOCOL, model))
        other = await self.receive(Greeting)
        if other.protocol != PROTOCOL or other.model != model:
            raise BaselineError("both sides of a baseline need the same model and dragonrt")

    async def close(self) -> None:
        """End the stream."""
        self._stream.close()
        await self._stream.wait_closed()
