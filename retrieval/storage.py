"""Writes that a crash cannot tear: on disk and complete, or not there."""

import os
from collections.abc import Iterable
from pathlib import Path

from .errors import RetrievalError

TEMPORARY = ".*.tmp"
"""Pattern of the files that an interrupted `write_atomically` leaves behind."""


def write_durably(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a new file and wait until it is on disk.

    Raises:
        RetrievalError: the file cannot be written (disk full, no permission).
    """
    try:
        with path.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RetrievalError(f"cannot write {path}: {error.strerror or error}") from error


def write_atomically(path: Path, data: bytes) -> None:
    """Create or replace a file such that it holds the old bytes or the new ones, never a mix.

    Raises:
        RetrievalError: the file cannot be written (disk full, no permission).
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    write_durably(temporary, [data])
    try:
        os.replace(temporary, path)  # noqa: PTH105 (one name for every kind of rename)
    except OSError as error:
        raise RetrievalError(f"cannot write {path}: {error.strerror or error}") from error
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Wait until the names in `directory` are on disk."""
    if os.name == "nt":  # Windows cannot open a directory, and journals its names itself
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise RetrievalError(f"cannot write {directory}: {error.strerror or error}") from error
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Create a directory and those above it, unless they are there.

    Raises:
        RetrievalError: it cannot be created.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RetrievalError(f"cannot create {directory}: {error.strerror or error}") from error
