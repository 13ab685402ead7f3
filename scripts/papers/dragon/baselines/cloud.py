"""The cloud's side of the baselines: it gives away documents, KV, tokens or whole sequences.

Run as a process of its own, its arguments are a directory of documents and a model's name. It
serves everybody who connects, so it listens on loopback only and says what it is.
"""

import asyncio
import signal
import sys
from pathlib import Path

from safetensors.numpy import save

from dragonrt.errors import DragonError, LinkError
from dragonrt.link.stream import Stream, listen
from dragonrt.node.process import programs
from dragonrt.node.process.composition import complete_library, load_model, local_side
from dragonrt.node.process.local_side import LocalSide
from dragonrt.node.process.side_settings import SideSettings
from scripts.papers.dragon.baselines.exchange import BaselineError, Channel, pack, unpack
from scripts.papers.dragon.baselines.reading import Asked, BaselineSide, packed

HOST = "127.0.0.1"


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
    async with local_side(settings, model, complete_library(settings, model)) as local:
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
