"""Computes KV while no answer is open, so that fewer questions wait for it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from dragonrt.errors import DragonError
from dragonrt.node.engine import Engine
from dragonrt.node.library import Library, MissingKv
from retrieval import RetrievalError


@asynccontextmanager
async def prefilling(library: Library, engine: Engine) -> AsyncIterator[Callable[[], None]]:
    """Compute the KV that chunks lack whenever no answer is open, until the context ends.

    One chunk at a time; a question stops it between two layers, and it begins anew when no answer
    is open any more. Gives a function that turns it to the library's newest snapshot. Files
    that the model does not read whole are named in a notice.
    """
    changed = asyncio.Event()
    changed.set()

    async def compute() -> None:
        await asyncio.to_thread(library.check)
        missing = await asyncio.to_thread(MissingKv, library)
        while (chunk := await asyncio.to_thread(missing.next)) is not None:
            if changed.is_set():
                return
            tokens = library.tokens(chunk)
            made = await engine.read_idle(partial(library.model.reading_document, tokens))
            await asyncio.to_thread(missing.store, chunk, made)

    async def run() -> None:
        while True:
            await changed.wait()
            changed.clear()
            try:
                await compute()
            except (DragonError, RetrievalError) as error:
                library.notice(f"KV is computed when a question needs it: {error}")

    task = asyncio.create_task(run(), name="prefilling")
    try:
        yield changed.set
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
