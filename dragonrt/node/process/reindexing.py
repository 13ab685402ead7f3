"""Index documents while a side answers: those not indexed yet, and changed ones (`--watch`).

A child process runs this module as a program, with the path of llama.cpp's library if it is set.
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
from retrieval import Report, RetrievalError
from retrieval.following import Order, found_files, main

if TYPE_CHECKING:
    from dragonrt.node.model_thread import ModelThread
    from dragonrt.node.process.library import Library

END_S = 2.0
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 60.0
"""Wait before a process that died is started again; doubled if it dies soon."""
_LONGEST = 2**24  # bytes of a report, which names the files that could not be read

OnReport = Callable[[Report | DragonError], None]  # gets an update's report, or why there is none


@dataclass(slots=True)
class IndexingState:
    """The state of background indexing: why it `stopped` or `failed`, or empty while it works."""

    stopped: str = ""
    failed: str = ""
    restarts: int = 0


@asynccontextmanager
async def reindexing(
    order: Order,
    library: "Library",
    thread: "ModelThread",
    on_report: OnReport,
    following: IndexingState,
    llama_library: Path | None,
) -> AsyncIterator[None]:
    """Keep the index of `library` up to date in the context, by a process with `llama_library`.

    It indexes the documents of `order`, slower while `thread` is busy, and restarts if it dies. Its
    state is in `following`; `on_report` gets reports. DragonError if documents cannot be watched.
    """
    if order.watch:
        try:
            await asyncio.to_thread(found_files, order)
        except RetrievalError as error:
            raise DragonError(str(error)) from error
    arguments = () if llama_library is None else (str(llama_library),)
    work = _kept_up(order, arguments, library, thread, on_report, following)
    task = asyncio.create_task(work, name="reindexing")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _kept_up(
    order: Order,
    arguments: Sequence[str],
    library: "Library",
    thread: "ModelThread",
    on_report: OnReport,
    following: IndexingState,
) -> None:
    """Run the process; restart it if it dies early."""
    clock, wait_s = asyncio.get_running_loop().time, FIRST_WAIT_S
    while True:
        since, reason = clock(), "its process ended"
        try:
            async with _process(order, arguments, thread) as lines:
                following.stopped = ""
                await _follow(lines, library, on_report, following)
        except OSError as error:
            reason = f"no process can be started: {error.strerror}"
        except (ValueError, TypeError):  # a line that was cut or has no end, or one of another kind
            reason = "its process wrote what is no report"
        if not order.watch and not library.left:
            return
        wait_s = FIRST_WAIT_S if clock() - since > LONGEST_WAIT_S else wait_s
        following.stopped = f"changes of the documents are not noticed: {reason}"
        on_report(DragonError(f"{following.stopped}; next try in {wait_s:g} s"))
        await asyncio.sleep(wait_s)
        following.restarts += 1
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


@asynccontextmanager
async def _process(
    order: Order, arguments: Sequence[str], thread: "ModelThread"
) -> AsyncIterator[asyncio.StreamReader]:
    """Start the process; yield its output; end it with the context."""
    pipe = asyncio.subprocess.PIPE
    program = (sys.executable, "-P", "-m", "dragonrt.node.process.reindexing", *arguments)
    process = await asyncio.create_subprocess_exec(
        *program, stdin=pipe, stdout=pipe, limit=_LONGEST
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        say = partial(_say, process)
        say(asdict(order))
        say(thread.busy)
        thread.on_busy = say
        yield process.stdout
    finally:
        thread.on_busy = lambda busy: None
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


def _say(process: asyncio.subprocess.Process, line: object) -> None:
    assert process.stdin is not None
    if process.returncode is None and not process.stdin.is_closing():
        process.stdin.write(json.dumps(line).encode() + b"\n")


async def _follow(
    lines: asyncio.StreamReader, library: "Library", on_report: OnReport, following: IndexingState
) -> None:
    skipped: Any = ()
    while line := await lines.readline():
        try:
            found: dict[str, Any] = json.loads(line)
            if "error" in found:
                raise DragonError(found["error"])
            report = Report(**found)
            changed = report.snapshot != library.retriever.index.manifest.snapshot
            complete = bool(library.left) and not report.left
            library.left = report.remaining
            if changed:
                library.retriever = await asyncio.to_thread(library.newest)
            following.failed = ""
            if changed or complete or report.skipped != skipped:
                on_report(report)
            skipped = report.skipped
        except (DragonError, RetrievalError) as error:
            following.failed = f"the documents cannot be indexed as they are now: {error}"
            on_report(DragonError(following.failed))


if __name__ == "__main__":
    main(partial(load_embedder, library=next(map(Path, sys.argv[1:]), None)))
