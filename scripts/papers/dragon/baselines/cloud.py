"""The cloud's side of the baselines: it gives away documents, KV, tokens or whole sequences.

Run as a process of its own, its arguments are a directory of documents and a model's name. It
serves everybody who connects, so it listens on loopback only and says what it is.
"""

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from safetensors.numpy import save

from dragonrt.errors import DragonError, LinkError
from dragonrt.link.stream import Stream, listen
from dragonrt.node.process import programs
from dragonrt.node.process.composition import Loaded, complete_library, load_model, local_side
from dragonrt.node.process.local_side import LocalSide
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.wire.encoding import FrameDecoder, encode_frame
from scripts.papers.dragon.baselines.reading import Asked, BaselineSide, packed

HOST = "127.0.0.1"
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
    """Messages over a stream, counted in bytes: frames of msgpack arrays, a name and its fields.

    The first one on each side is a Greeting (the protocol, the model's fingerprint), which makes a
    normal side hang up. Both sides are this program, so no message is checked beyond its name. A
    BaselineRequest has what is asked for and all fields of `Asked`. It is answered with each Text
    (title, text, score) or StoredKv (safetensors, score) and an End; with each Token; or with
    Drawn, the cloud's sequence, its h̃ and the distributions along it, then, for the device's
    sequence in Score, Scored: the distributions along that. Sequences are packed tokens,
    distributions float32 one after another, or for `scores` their log-probability of the sequence,
    one float64. Methods raise LinkError if the link breaks.
    """

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


async def serve_baselines(stream: Stream, side: BaselineSide) -> None:
    """Answer one device's requests, one after another, until it hangs up."""
    channel = Channel(stream)
    try:
        await channel.greet(side.model.document_fingerprint)
        while True:
            _, what, *asked = await channel.receive("BaselineRequest")
            await _answer(channel, side, what, Asked(*asked))
    except (BaselineError, LinkError):
        pass  # the device has left, or was no baseline's device
    finally:
        await channel.close()


async def _answer(channel: Channel, side: BaselineSide, what: str, asked: Asked) -> None:
    match what:
        case "texts":
            for text in await side.texts(asked):
                await channel.send("Text", *text)
            await channel.send("End")
        case "kv":
            hits = await side.find(asked)
            for hit, stored in zip(hits, await side.kv(hits), strict=True):
                await channel.send("StoredKv", save(stored.dump()), hit.score)
            await channel.send("End")
        case "answer":
            reader = await side.read_context(await side.texts(asked), asked)
            async for token, _ in side.decode(reader, asked):
                await channel.send("Token", token)
        case _:  # scores or distributions
            hits = await side.find(asked)
            reader = await side.read_rows(await side.kv(hits), [hit.score for hit in hits], asked)
            drawn = [each async for each in side.decode(reader, asked)]
            tokens, p = zip(*drawn, strict=True)
            await channel.send("Drawn", pack(tokens), reader.relevance, packed(what, tokens, p))
            _, sequence = await channel.receive("Score")
            theirs = unpack(sequence)
            along = await side.distributions(reader, theirs)
            await channel.send("Scored", packed(what, theirs, along))


def baseline_side(side: LocalSide) -> BaselineSide:
    """Return the same model, documents and threads; DragonError without documents."""
    if side.library is None:
        raise DragonError("a baseline needs documents to retrieve from")
    # A baseline does one thing after another, and has one user: one thread is enough.
    return BaselineSide(side.side, side.model, side.library, side.librarian, side.librarian)


async def serve(settings: SideSettings) -> None:
    """Serve until SIGINT or SIGTERM; the port is the end of a line on stderr."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    model = load_model(settings)
    async with local_side(Loaded(settings, model, complete_library(settings, model))) as local:
        side = baseline_side(local)
        async with await listen(HOST, 0, lambda stream: serve_baselines(stream, side)) as server:
            print("an experiment: this process gives its documents away", file=sys.stderr)
            print(f"baselines listens on {HOST}:{server.port}", file=sys.stderr, flush=True)
            await stopped.wait()


if __name__ == "__main__":
    documents, name = sys.argv[1:]
    try:
        programs.run(serve(SideSettings("cloud", model=name, documents=(Path(documents),))))
    except DragonError as error:
        sys.exit(str(error))
