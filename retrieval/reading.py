"""A program that reads documents within limits: `python -m retrieval.reading`; see `reader`.

A file may be made to take all memory or time of what parses it, or to crash it, and no library is
sure against that. So this process parses, and nothing is lost with it. For each Request, a line of
JSON, it writes a line: {"content": its hash, "pieces": its chunks} or {"reason": why there are
none}. It ends with its input, also in the middle of a file.
"""

import hashlib
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .chunking import chunk, header
from .documents import Parser, parse
from .failures import DocumentError
from .files import read_bytes

try:
    import fcntl
    import resource
except ImportError:  # Windows has neither: there the deadline alone holds
    fcntl = resource = None  # type: ignore[assignment]

Piece = tuple[str, str, int, int, int]
"""Text, title, first character, end and page of a chunk."""


@dataclass(frozen=True, slots=True)
class Request:
    """A file to be read and cut into chunks of `words` words.

    Not if its content is `known`; not if it, or its text, is larger than `largest`; not if that
    takes more than so many bytes of memory or `seconds` of the processor.
    """

    path: str
    known: str
    words: int
    parser: Parser
    largest: float
    memory: int
    seconds: float


def read(request: Request) -> dict[str, Any]:
    """The content hash of a file, and its pieces, None if it is known. Raises DocumentError."""
    path = Path(request.path)
    try:
        data = read_bytes(path, request.largest)
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror or error}") from error
    content = hashlib.sha256(data).hexdigest()
    if content == request.known:
        return {"content": content, "pieces": None}
    _bound(request)
    document = parse(data, path.suffix, request.parser)
    del data
    if (size := len(document.text)) > request.largest:
        raise DocumentError(f"has {size / 1e6:.1f} MB of text, more than --largest-file allows")
    pieces: list[Piece] = []
    starts = [start for start, _ in document.sections]
    for start, end in chunk(document.text, request.words, starts, document.tables):
        text = document.text[start:end]
        if above := header(document.text, start, document.tables, request.words):
            text = f"{above}\n{text}"
        pieces.append((text, document.name(start), start, end, document.page(start)))
    return {"content": content, "pieces": pieces}


def _bound(request: Request) -> None:
    """End this process when it has taken more of the processor; refuse it more memory."""
    if resource is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        end = int(used.ru_utime + used.ru_stime + request.seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_AS, (request.memory, resource.RLIM_INFINITY))


def _answer(line: bytes) -> bytes:
    request = Request(**json.loads(line))
    try:
        said = json.dumps(read(request))
    except DocumentError as error:
        said = json.dumps({"reason": str(error)})
    except MemoryError:
        memory = f"{request.memory // 2**20} MiB"
        said = json.dumps({"reason": f"needs more than {memory} of memory to be read"})
    return said.encode() + b"\n"


def _ends_with_input(*, now: bool) -> None:
    """Have the system end this process as soon as nobody writes to its input any more, or not.

    A thread could not: what parses may hold the interpreter. While this is so, nobody writes.
    """
    if fcntl is not None and hasattr(os, "O_ASYNC"):
        flags = fcntl.fcntl(0, fcntl.F_GETFL)
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC if now else flags & ~os.O_ASYNC)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other program, which ends this
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # private text would be in it
    with suppress(OSError):  # where memory is short it is this process's turn
        Path("/proc/self/oom_score_adj").write_text("1000")
    sys.stdout.buffer.write(b"{}\n")
    sys.stdout.buffer.flush()
    while line := sys.stdin.buffer.readline():
        _ends_with_input(now=True)
        said = _answer(line)
        _ends_with_input(now=False)
        sys.stdout.buffer.write(said)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main()
