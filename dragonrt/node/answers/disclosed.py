"""Remember which text of each answer was disclosed, so a follow-up question discloses no more."""

import json
import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from filelock import FileLock

from dragonrt.modes.question import Turn
from retrieval.files import create, make_directory, read_bytes

REMEMBERED = 1024
"""The latest answers of which it is known."""
LARGEST = 2**26
"""Bytes of the file; it is written anew at half of them, with at most a quarter."""
_LONGEST_S = 2.0  # for another process to write


class DisclosedAnswers:
    """Stores, by a hash of question and answer, which text of an answer other sides received.

    The file `path`, which only its owner can read, keeps texts over restarts (None: memory only).
    Several processes may share the file. Text that a privacy level withheld is never stored.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = path and FileLock(path.with_suffix(".lock"), _LONGEST_S, mode=0o600)
        self._lines: dict[str, bytes] = {}  # as in the file, by key
        self._bytes = 0
        self._read()

    def get(self, turn: Turn) -> str | None:
        """Return the text that other sides received of a turn's answer, None if not stored."""
        line = self._lines.get(_key(turn))
        return None if line is None else str(json.loads(line)[1])

    def remember(self, turn: Turn, disclosed: str) -> None:
        line = self._keep(_key(turn), disclosed)
        if self._path is not None and self._lock is not None:
            with suppress(OSError), self._lock:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
                with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
                    size = file.tell()
                if size > LARGEST // 2:
                    self._read()  # other devices of this user may have written to it

    def _read(self) -> None:
        """Read the file, and write it anew if most of it has been forgotten."""
        if self._path is None or self._lock is None:
            return
        with suppress(OSError):
            make_directory(self._path.parent)
        with suppress(OSError), self._lock:
            data = read_bytes(self._path, LARGEST)
            lines = data.splitlines()
            for line in lines:
                with suppress(ValueError, TypeError):
                    key, text = json.loads(line)
                    self._keep(str(key), str(text))
            if len(lines) > 2 * REMEMBERED or len(data) > LARGEST // 2:
                whole = self._path.with_suffix(".new")
                with create(whole) as file:
                    file.writelines(self._lines.values())
                    file.flush()
                    os.fsync(file.fileno())
                whole.replace(self._path)

    def _keep(self, key: str, text: str) -> bytes:
        line = json.dumps((key, text)).encode() + b"\n"
        self._bytes += len(line) - len(self._lines.pop(key, b""))
        self._lines[key] = line
        while len(self._lines) > REMEMBERED or self._bytes > LARGEST // 4:
            self._bytes -= len(self._lines.pop(next(iter(self._lines))))
        return line


def _key(turn: Turn) -> str:
    return blake2b(json.dumps(turn).encode(), digest_size=16).hexdigest()
