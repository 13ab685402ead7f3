"""A process that parses documents within limits, so that no file harms the indexing process.

In any library a file may make its parser crash, hang or exhaust memory. So `python -m
retrieval.reader` parses. For each line of JSON, `[path, known hash, seconds, words, largest]`, it
writes one: {"content": hash, "pieces": chunks (null for the known hash), "unread": counts, "front":
front matter}, or {"reason": error}. It ends with its input, also in the middle of a file.
"""

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from typing_extensions import override

from . import DocumentError, RetrievalError
from .chunking import Piece, pieces
from .documents import parse
from .files import read_bytes

try:
    import fcntl
    import resource
except ImportError:  # on Windows the deadline alone holds
    fcntl = resource = None  # type: ignore[assignment]

MEMORY = 2**30
"""The most memory for reading one file, in bytes."""
SECONDS, SECONDS_PER_MB = 20.0, 5.0
"""Time of the processor that it may take: at least, and for its size."""
_WAITED = 4
"""The same of wall-clock time, in multiples of it."""
_START_S = 30.0
_ATTEMPTS = 3
_ENVIRONMENT = (
    "PATH PYTHONPATH PYTHONHOME PYTHONUTF8 VIRTUAL_ENV LANG LC_ALL LC_CTYPE "
    "HOME TMPDIR TEMP TMP SYSTEMROOT HF_HOME HF_HUB_OFFLINE"
)
"""The process gets no other variable: they may hold passwords."""


class Reader(AbstractContextManager["Reader"]):
    """Parses files in another process, started when needed; leaving the context ends the process.

    Texts are cut into chunks of `words` words. `largest` limits a file's bytes and its characters.
    """

    def __init__(self, words: int = 64, largest: float = math.inf) -> None:
        self.words, self.largest = words, largest
        self._process: subprocess.Popen[bytes] | None = None

    @override
    def __exit__(self, *_: object) -> None:
        self._end()

    def read(
        self, path: Path, size: int, known: str = ""
    ) -> tuple[str, list[Piece] | None, str, str]:
        """Return (content hash, chunks, unread, front matter) of the file `path` of `size` bytes.

        The chunks are None if the hash is `known`. `unread` counts content that is not text, "2
        pictures". The limit of time grows with `size`. Raises DocumentError if the file cannot be
        read within the limits, RetrievalError if no file can.
        """
        seconds = SECONDS + SECONDS_PER_MB * size / 1e6
        request = json.dumps([str(path), known, seconds, self.words, self.largest])
        for left in reversed(range(_ATTEMPTS)):
            process = self._process or self._start()
            line = _ask(process, request.encode() + b"\n", seconds)
            if line.endswith(b"\n"):
                break
            why = self._why_it_died(process, seconds)
            # A system may signal a written request after it was read (`_end_with_input`).
            if not left or process.returncode != -getattr(signal, "SIGIO", 0):
                raise DocumentError(why)
        answer: dict[str, Any] = json.loads(line)
        if "reason" in answer:
            raise DocumentError(answer["reason"])
        return answer["content"], answer["pieces"], answer["unread"], answer["front"]

    def _start(self) -> "subprocess.Popen[bytes]":
        try:
            self._process = process = subprocess.Popen(
                [sys.executable, "-P", "-m", "retrieval.reader"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # the libraries' messages may quote a document
                env={name: os.environ[name] for name in _ENVIRONMENT.split() if name in os.environ},
            )
        except OSError as error:
            raise RetrievalError(f"no process can read documents: {error.strerror}") from error
        if not _ask(process, b"", _START_S):
            self._end()
            raise RetrievalError(
                f"documents cannot be read: {sys.executable} -m retrieval.reader does not start "
                f"(exit code {process.returncode})"
            )
        return process

    def _why_it_died(self, process: "subprocess.Popen[bytes]", seconds: float) -> str:
        self._end()
        code = process.returncode
        if code in (-getattr(signal, "SIGXCPU", 0), -getattr(signal, "SIGKILL", 0)):
            return f"takes too long to read: more than {seconds:.0f} s, or all memory"
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"cannot be read: its parser breaks off ({name})"

    def _end(self) -> None:
        if (process := self._process) is not None:
            self._process = None
            with suppress(BrokenPipeError), process:  # it has not read all its input
                process.kill()


def _ask(process: "subprocess.Popen[bytes]", line: bytes, seconds: float) -> bytes:
    """Return a process's line of answer; incomplete if it died or was too slow."""
    assert process.stdin is not None
    assert process.stdout is not None
    deadline = threading.Timer(_WAITED * seconds, process.kill)
    deadline.daemon = True
    deadline.start()
    try:
        process.stdin.write(line)
        process.stdin.flush()
        return process.stdout.readline()
    except BrokenPipeError:
        return b""
    finally:
        deadline.cancel()


# In the process.


def _read(name: str, known: str, seconds: float, words: int, largest: float) -> dict[str, Any]:
    path = Path(name)
    try:
        data = read_bytes(path, largest)
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror or error}") from error
    content = hashlib.sha256(data).hexdigest()
    if content == known:
        return {"content": content, "pieces": None, "unread": "", "front": ""}
    _limit(seconds)
    document = parse(data, path.suffix)
    del data
    if (size := len(document.text)) > largest:
        raise DocumentError(f"has {size / 1e6:.1f} MB of text, more than largest-file allows")
    found, unread = [*pieces(document, words)], document.unread
    return {"content": content, "pieces": found, "unread": unread, "front": document.front}


def _limit(seconds: float) -> None:
    """Limit the process to `seconds` more of the processor, and its memory."""
    if resource is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        end = int(used.ru_utime + used.ru_stime + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))


def _answer(line: str) -> str:
    try:
        return json.dumps(_read(*json.loads(line)))
    except DocumentError as error:
        reason = str(error)
    except MemoryError:
        reason = f"needs more than {MEMORY // 2**20} MiB of memory to be read"
    return json.dumps({"reason": reason})


def _end_with_input(*, now: bool) -> None:
    """Have the system end this process, or not, when its input is closed or written.

    A thread could not, as the parser may hold the interpreter. The parent does not write meanwhile.
    """
    if fcntl is not None and hasattr(os, "O_ASYNC"):
        flags = fcntl.fcntl(0, fcntl.F_GETFL)
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC if now else flags & ~os.O_ASYNC)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would contain private text
    sys.modules["numpy"] = None  # type: ignore[assignment] # openpyxl would load it, with threads
    with suppress(OSError):  # first to go if memory is short
        Path("/proc/self/oom_score_adj").write_text("1000")
    answer = "{}"
    while True:
        print(answer, flush=True)
        if not (line := sys.stdin.readline()):
            return
        _end_with_input(now=True)
        answer = _answer(line)
        _end_with_input(now=False)


if __name__ == "__main__":
    _main()
