"""Indexes documents while a side answers: the remaining ones, and changes (`--watch`).

This module as a program, with llama.cpp's library as its argument if it is not an installed one,
updates the index in its own process; the side retrieves from each new snapshot.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.errors import DragonError
from dragonrt.timeouts import USUAL
from retrieval import Report, RetrievalError
from retrieval.following import Order, main

if TYPE_CHECKING:
    from dragonrt.node.process.library import Library

END_S = 2.0
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 60.0
"""Wait before a process that died is started again; doubled if it dies soon."""
_LONGEST = 2**24  # bytes of a report, which names the files that could not be read

OnReport = Callable[[Report | DragonError], None]
"""Receives the report of an update, or why there was none."""


@dataclass(slots=True)
class Following:
    """Reasons: for no process that indexes, and for the last failed update; else empty."""

    stopped: str = ""
    failed: str = ""
    restarts: int = 0


@asynccontextmanager
async def reindexing(
    order: Order,
    library: "Library",
    on_report: OnReport,
    following: Following,
    llama_library: Path | None,
) -> AsyncIterator[None]:
    """Keep an index and its library equal to the documents until the context ends.

    A process that dies is restarted. Raises DragonError if the documents cannot be watched.
    """
    begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    arguments = () if llama_library is None else (str(llama_library),)
    work = _kept_up(order, arguments, library, on_report, following, begun)
    task = asyncio.create_task(work, name="reindexing")
    try:
        await asyncio.shield(begun)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _kept_up(
    order: Order,
    arguments: Sequence[str],
    library: "Library",
    on_report: OnReport,
    following: Following,
    begun: "asyncio.Future[None]",
) -> None:
    """Run the process; restart it if it dies early. Sets `begun` at the first start."""
    clock, wait_s = asyncio.get_running_loop().time, FIRST_WAIT_S
    while True:
        since = clock()
        try:
            async with _process(order, arguments) as lines:
                following.stopped = ""
                if not begun.done():
                    begun.set_result(None)
                await _follow(lines, library, on_report, following)
            reason = "its process ended"
        except (DragonError, ValueError, TypeError) as error:
            # A line that was cut or has no end is a ValueError, one of another kind a TypeError.
            if not isinstance(error, DragonError):
                error = DragonError("its process wrote what is no report")
            if not begun.done():
                begun.set_exception(error)
                return
            reason = str(error)
        if not order.watch and not library.incomplete:
            return
        wait_s = FIRST_WAIT_S if clock() - since > LONGEST_WAIT_S else wait_s
        following.stopped = f"changes of the documents are not noticed: {reason}"
        on_report(DragonError(f"{following.stopped}; next try in {wait_s:g} s"))
        await asyncio.sleep(wait_s)
        following.restarts += 1
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


@asynccontextmanager
async def _process(order: Order, arguments: Sequence[str]) -> AsyncIterator[asyncio.StreamReader]:
    """Start the process; yield its output once it notices changes; end it with the context."""
    pipe = asyncio.subprocess.PIPE
    program = (sys.executable, "-P", "-m", "dragonrt.node.process.reindexing", *arguments)
    try:
        process = await asyncio.create_subprocess_exec(
            *program, stdin=pipe, stdout=pipe, limit=_LONGEST
        )
    except OSError as error:
        raise DragonError(f"no process can be started: {error.strerror}") from None
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
        if order.watch:
            async with asyncio.timeout(USUAL.answer_s):
                _parsed(await process.stdout.readline())
        yield process.stdout
    except TimeoutError:
        raise DragonError("the documents cannot be watched: the system does not answer") from None
    finally:
        try:
            if process.returncode is None:
                process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await process.wait()
        finally:
            # In the middle of a long file, which the next update continues, or cancelled once more.
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _follow(
    lines: asyncio.StreamReader, library: "Library", on_report: OnReport, following: Following
) -> None:
    skipped: Any = ()
    while line := await lines.readline():
        try:
            report = Report(**_parsed(line))
            changed = report.snapshot != library.retriever.index.manifest.snapshot
            complete = library.incomplete and not report.left
            library.incomplete = report.left > 0
            if changed:
                library.retriever = await asyncio.to_thread(library.newest)
            following.failed = ""
            if changed or complete or report.skipped != skipped:
                on_report(report)
            skipped = report.skipped
        except (DragonError, RetrievalError) as error:
            following.failed = f"the documents cannot be indexed as they are now: {error}"
            on_report(DragonError(following.failed))


def _parsed(line: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line or '{"error": "nothing watches the documents"}')
    if "error" in found:
        raise DragonError(found["error"])
    return found


if __name__ == "__main__":
    main(partial(load_embedder, library=next(map(Path, sys.argv[1:]), None)))
