"""Running a process: its event loop, and the two programs that live in it."""

import asyncio
import gc
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from dragonrt.language.model import LanguageModel
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.endpoints import Address, Identity, connector, serve
from dragonrt.runtime.library import Library
from dragonrt.runtime.local_side import LocalSide
from dragonrt.runtime.process import SideSettings, local_side

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a process's coroutine, on uvloop where there is one."""
    # What was loaded lives as long as the process: collecting it would stall decoding and the exit.
    gc.freeze()
    with asyncio.Runner(loop_factory=_loop) as runner:
        return runner.run(main)


def _loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    class Loop(uvloop.Loop):
        """uvloop's clock is the same one, but counts whole milliseconds."""

        def time(self) -> float:
            return time.monotonic()

    loop: asyncio.AbstractEventLoop = Loop()
    return loop


def identity(side: LocalSide) -> Identity:
    """What this side says of itself in the handshake."""
    model = side.model
    return Identity(
        side.side, model.tokenizer_fingerprint, model.vocabulary, model.name, model.fingerprint
    )


async def run_cloud(
    settings: SideSettings,
    model: LanguageModel,
    library: Library | None,
    address: Address,
    on_change: Callable[[str], None],
    on_ready: Callable[[int], None],
) -> None:
    """Serve devices until SIGINT or SIGTERM; `on_ready` hears the port."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with (
        local_side(settings, model, library) as side,
        await serve(address, identity(side), side, on_change) as server,
    ):
        on_ready(server.port)
        await stopped.wait()


@asynccontextmanager
async def device(
    settings: SideSettings, model: LanguageModel, library: Library | None, address: Address
) -> AsyncIterator[tuple[LocalSide, Connector]]:
    """A device that is connected to its cloud, until the context ends.

    Raises DragonError if the cloud cannot be reached or does not fit.
    """
    async with local_side(settings, model, library) as side:
        cloud = connector(address, identity(side), side)
        await cloud.connect()
        keeper = asyncio.create_task(cloud.run(), name="connector")
        await asyncio.sleep(0)  # a task that is cancelled before it has begun closes nothing
        try:
            yield side, cloud
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
