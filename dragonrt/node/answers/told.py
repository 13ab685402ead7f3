"""Disclosed and withheld tokens of earlier answers: withheld once is withheld for ever."""

import json
import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import platformdirs

from dragonrt.modes.question import Turn
from retrieval.files import create, make_directory, read_text

REMEMBERED = 1024
"""The latest answers of which it is known."""
LARGEST = 2**26
"""Bytes of the file."""


def told_path() -> Path:
    """Return the file of this user's devices."""
    return Path(platformdirs.user_data_dir("dragonrt")) / "told.jsonl"


class ToldAnswers:
    """The disclosed texts of answers, by a hash of question and answer.

    `path` keeps them over restarts, for their owner alone; None keeps none. It holds no text that
    was withheld. What cannot be read or written counts as unknown.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._texts: dict[str, str] = {}
        lines: list[str] = []
        with suppress(OSError, ValueError):
            lines = read_text(path, LARGEST).splitlines() if path is not None else []
        for line in lines:
            with suppress(ValueError, TypeError):
                key, text = json.loads(line)
                self._keep(str(key), str(text))
        if path is not None and len(lines) > 2 * REMEMBERED:
            with suppress(OSError), create(path) as file:
                file.writelines(map(_line, self._texts, self._texts.values()))

    def get(self, turn: Turn) -> str | None:
        """Return what other sides were told of an answer, None if that is not known."""
        return self._texts.get(_key(turn))

    def remember(self, turn: Turn, told: str) -> None:
        """Keep what other sides were told of an answer."""
        key = _key(turn)
        self._keep(key, told)
        if self._path is not None:
            with suppress(OSError):
                make_directory(self._path.parent)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
                with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
                    file.write(_line(key, told))

    def _keep(self, key: str, text: str) -> None:
        self._texts.pop(key, None)
        self._texts[key] = text
        while len(self._texts) > REMEMBERED:
            del self._texts[next(iter(self._texts))]


def _key(turn: Turn) -> str:
    return blake2b(json.dumps(turn).encode(), digest_size=16).hexdigest()


def _line(key: str, text: str) -> bytes:
    return json.dumps((key, text)).encode() + b"\n"
