"""A process that reads documents, so that whatever is in them harms no other."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .documents import Parser, way
from .failures import DocumentError, RetrievalError
from .reading import Piece, Request


@dataclass(frozen=True, slots=True)
class Limits:
    """What reading one file may take: bytes of memory, and seconds of the processor."""

    memory: int
    seconds: float
    seconds_per_mb: float


LIMITS = {"": Limits(2**30, 20.0, 5.0), "docling": Limits(2**35, 600.0, 3600.0)}
"""By `documents.way`."""

_WAITED = 4
"""Times its seconds of the processor a file may take in all, waiting for others or for a disk."""
_START_S = 30.0
_ENVIRONMENT = (
    *(
        "PATH",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONUTF8",
        "VIRTUAL_ENV",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
    ),
    *("HOME", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "HF_HOME", "HF_HUB_OFFLINE"),
)
"""Of the environment it has no more: passwords are kept there."""


class Reader:
    """`retrieval.reading` in a process that begins with the first file, and again if it dies.

    A context, at whose end the process is over.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def read(
        self, path: Path, size: int, known: str, words: int, parser: Parser, largest: float
    ) -> tuple[str, list[Piece] | None]:
        """The content hash of a file of about `size` bytes, and its chunks; None if it is `known`.

        Raises:
            DocumentError: it cannot be read, or not within the limits.
            RetrievalError: no file can be read here.
        """
        limits = LIMITS[way(path.suffix, parser)]
        seconds = limits.seconds + limits.seconds_per_mb * size / 1e6
        request = Request(str(path), known, words, parser, largest, limits.memory, seconds)
        if self._process is None:
            self._process = self._begun()
        line = _asked(self._process, json.dumps(asdict(request)).encode() + b"\n", seconds)
        if not line.endswith(b"\n"):
            raise DocumentError(self._reason(seconds))
        said: dict[str, Any] = json.loads(line)
        if "reason" in said:
            raise DocumentError(said["reason"])
        return said["content"], said["pieces"]

    def _begun(self) -> "subprocess.Popen[bytes]":
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "retrieval.reading"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # what libraries say may quote a document
                env=environment,
            )
        except OSError as error:
            raise RetrievalError(f"no process can read documents: {error.strerror}") from error
        self._process = process
        if _asked(process, b"", _START_S):
            return process
        self._end()
        raise RetrievalError(
            f"documents cannot be read: {sys.executable} -m retrieval.reading does not start "
            f"(exit code {process.returncode})"
        )

    def _reason(self, seconds: float) -> str:
        """Why it died."""
        code = self._end()
        if code in (-getattr(signal, "SIGXCPU", 0), -getattr(signal, "SIGKILL", 0)):
            return f"takes too long to read: more than {seconds:.0f} s, or all memory"
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"cannot be read: what parses it breaks off ({name})"

    def _end(self) -> int:
        """End the process, if there is one; its exit code."""
        if (process := self._process) is None:
            return 0
        self._process = None
        assert process.stdin is not None
        assert process.stdout is not None
        process.kill()  # without effect where it is over
        code = process.wait()
        process.stdout.close()
        with suppress(BrokenPipeError):  # it has not read all of it
            process.stdin.close()
        return code


def _asked(process: "subprocess.Popen[bytes]", line: bytes, seconds: float) -> bytes:
    """The line that a process answers with; not whole if it died, or was killed as too slow."""
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
