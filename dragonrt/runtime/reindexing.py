"""Documents that are indexed while a side answers: the rest of them, and changes (`--watch`).

`retrieval.following` updates the index in a process of its own; the side retrieves from each new
snapshot as soon as it hears of it. Answers that have begun keep the chunks that they found.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

from dragonrt.errors import DragonError
from dragonrt.patience import USUAL
from dragonrt.runtime.library import Library
from retrieval import Report, RetrievalError
from retrieval.following import Order

END_S = 2.0
_LONGEST = 2**24  # bytes of a report, which names the files that could not be read


class NotWatchedError(DragonError):
    """Nothing notices changes of the documents any more."""


OnReport = Callable[[Report | DragonError], None]
"""Hears what an update did, or why there was none."""


@asynccontextmanager
async def reindexing(order: Order, library: Library, on_report: OnReport) -> AsyncIterator[None]:
    """Make an index, and the library opened from it, as the documents are, until the context ends.

    Raises DragonError if they cannot be watched.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "retrieval.following"),
        stdin=pipe,
        stdout=pipe,
        limit=_LONGEST,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
        if order.watch:
            async with asyncio.timeout(USUAL.answer_s):
                _said(await process.stdout.readline())
        following = asyncio.create_task(
            _follow(process.stdout, library, on_report, watch=order.watch), name="reindexing"
        )
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    except TimeoutError:
        raise DragonError("the documents cannot be watched: the system does not answer") from None
    finally:
        await _end(process)


async def _follow(
    lines: asyncio.StreamReader, library: Library, on_report: OnReport, *, watch: bool
) -> None:
    skipped: Any = ()
    while line := await lines.readline():
        try:
            report = Report(**_said(line))
            changed = report.snapshot != library.retriever.index.manifest.snapshot
            complete = library.incomplete and not report.left
            library.incomplete = report.left > 0
            if changed:
                library.retriever = await asyncio.to_thread(library.newest)
            if changed or complete or report.skipped != skipped:
                on_report(report)
            skipped = report.skipped
        except (DragonError, RetrievalError) as error:
            on_report(DragonError(f"the documents cannot be indexed as they are now: {error}"))
    if watch:
        on_report(NotWatchedError("changes of the documents are not noticed any more: start again"))
    elif library.incomplete:
        on_report(DragonError("the other documents are not indexed: start again"))


def _said(line: bytes) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(line or '{"error": "nothing watches the documents"}')
    if "error" in said:
        raise DragonError(said["error"])
    return said


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:  # in the middle of something long: the next update takes that up
        process.kill()
        await process.wait()
