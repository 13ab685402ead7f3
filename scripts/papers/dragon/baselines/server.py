"""The baselines' cloud as a process of its own; its arguments are a directory and a model's name.

It gives its documents away to whoever connects. That is what the baselines are about, so it listens
on loopback only and says what it is.
"""

import asyncio
import signal
import sys
from pathlib import Path

from dragonrt.errors import DragonError
from dragonrt.link.stream import TcpStream, listen
from dragonrt.node import main as programs
from dragonrt.node.local_side import LocalSide
from dragonrt.node.process import complete_library, load_model, local_side
from dragonrt.node.side_settings import SideSettings
from scripts.papers.dragon.baselines.cloud import serve_baselines
from scripts.papers.dragon.baselines.reading import BaselineSide

HOST = "127.0.0.1"


def baseline_side(side: LocalSide) -> BaselineSide:
    """The same model, documents and threads for baselines; DragonError without documents."""
    if side.library is None:
        raise DragonError("a baseline needs documents to retrieve from")
    # A baseline does one thing after another, and nobody else asks meanwhile: one thread is enough.
    return BaselineSide(side.side, side.model, side.library, side.librarian, side.librarian)


async def serve(settings: SideSettings) -> None:
    """Serve until SIGINT or SIGTERM; the port is the end of a line on stderr."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    model = load_model(settings)
    async with local_side(settings, model, complete_library(settings, model)) as local:
        side = baseline_side(local)

        async def handle(stream: TcpStream) -> None:
            await serve_baselines(stream, side)

        async with await listen(HOST, 0, handle) as server:
            print("an experiment: this process gives its documents away", file=sys.stderr)
            print(f"baselines listens on {HOST}:{server.port}", file=sys.stderr, flush=True)
            await stopped.wait()


if __name__ == "__main__":
    documents, name = sys.argv[1:]
    try:
        programs.run(serve(SideSettings("cloud", model=name, documents=(Path(documents),))))
    except DragonError as error:
        sys.exit(str(error))
