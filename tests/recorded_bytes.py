"""Bytes that left a device, recorded on their way, and what whoever has them can read in them.

It counts by the messages themselves, and knows nothing of the ledger's rules.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from dragonrt.distributions import Codec, decode_block, decode_distribution
from dragonrt.distributions.block import block_steps
from dragonrt.link.stream import Layer, Stream
from dragonrt.modes.blocks.messages import Block
from dragonrt.modes.dragon.messages import Draft, EntryRequest, EntryResponse
from dragonrt.modes.messages import Target
from dragonrt.modes.question import Question
from dragonrt.wire import messages as wire
from dragonrt.wire.encoding import decode
from dragonrt.wire.frames import FrameDecoder
from dragonrt.wire.values import unpack

LARGEST = 2**22


class RecordingStream(Layer):
    """A stream whose written bytes are appended to a tape."""

    def __init__(self, stream: Stream, tape: bytearray) -> None:
        super().__init__(stream)
        self._tape = tape

    async def receive(self) -> bytes:
        return await self._stream.receive()

    def write(self, data: bytes) -> None:
        self._tape += data
        self._stream.write(data)


@dataclass
class Proxy:
    """A TCP proxy on `port`; `tapes` has what came through it to the cloud, by connection."""

    port: int
    tapes: list[bytearray] = field(default_factory=list)


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    """Record what passes to that port of this machine, until the context ends."""
    found = Proxy(0)
    passing: set[asyncio.Task[None]] = set()

    async def carry(
        source: asyncio.StreamReader, to: asyncio.StreamWriter, tape: bytearray
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                tape += data
                to.write(data)
                await to.drain()
            to.write_eof()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up, down = await asyncio.open_connection("127.0.0.1", port)
        found.tapes.append(bytearray())
        ways = (carry(reader, down, found.tapes[-1]), carry(up, writer, bytearray()))
        tasks = [asyncio.create_task(way) for way in ways]
        passing.update(tasks)
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in (down, writer):
            each.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        found.port = server.sockets[0].getsockname()[1]
        yield found
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)


def messages(data: bytes) -> Iterator[wire.Message]:
    """Yield the messages of a connection's bytes; a last one that is cut off is left out."""
    frames = FrameDecoder(LARGEST)
    frames.feed(data)
    while (body := frames.next_body()) is not None:
        yield decode(body)


@dataclass
class Read:
    """What was read: bytes of text, `tokens` in their order, and how many of the rest."""

    question: int = 0
    history: int = 0
    tokens: list[int] = field(default_factory=list)
    distributions: int = 0
    documents: int = 0
    texts: list[str] = field(default_factory=list)
    opened: int = 0

    def take(self, message: wire.Message, code: Codec | None) -> None:
        """Read a message; `code` decodes its distributions, None where a codec cannot alone."""
        match message:
            case wire.Open():
                asked = unpack(Question, message.question)
                turns = [text for turn in asked.history for text in turn]
                self.opened += 1
                self.question += len(asked.prompt.encode()) + len(asked.instructions.encode())
                self.history += sum(len(text.encode()) for text in turns)
                self.texts += [asked.prompt, asked.instructions, *turns]
                self.tokens += asked.accepted
            case Draft():
                if code is not None:
                    decode_distribution(code, message.payload)
                self.tokens.append(message.token)
                self.distributions += 1
            case Target():
                self.tokens.append(message.token)
            case EntryRequest():
                self.tokens += message.tokens
            case EntryResponse():
                self.distributions += 1
            case Block():
                assert code is not None
                steps = block_steps(message.step, message.count, message.resolutions)
                tokens, distributions = decode_block(code, message.payload, steps)
                self.tokens += [*message.decided, *tokens]
                self.distributions += len(distributions or ())
            case wire.Close():
                found = message.attribution
                self.documents += len(found.sources) if found is not None else 0
            case wire.SessionMessage():
                assert message.TYPE & 0xFF in (16, 17), "nothing is known of it"

    def not_in(self, marker: Sequence[int]) -> int:
        """Return how many tokens are none of the marker's."""
        return sum(token not in marker for token in self.tokens)


def read(data: bytes, code: Codec | None) -> Read:
    """Return what is read in a connection's bytes from its first message to the last whole one."""
    found = Read()
    for message in messages(data):
        found.take(message, code)
    return found
