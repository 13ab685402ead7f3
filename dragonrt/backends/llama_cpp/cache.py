"""Model files that are made on this machine, once, and kept beside the indexes."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import platformdirs
from filelock import FileLock

from dragonrt.errors import ModelError
from retrieval.files import create, make_directory


def models_directory() -> Path:
    """Return the directory of the files that were made here."""
    return Path(platformdirs.user_data_dir("dragonrt")) / "models"


def cached(name: str, key: str, write: Callable[[Path], None]) -> Path:
    """Return the file `name`-HASH.gguf of this key; have `write` make it if it is not there.

    A second process waits while a first one makes it. Only its owner can read it. Raises ModelError
    if it cannot be made.

    Args:
        key: names all that the file is made from.
        write: writes to a path that exists and is empty.
    """
    path = models_directory() / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.gguf"
    if path.exists():
        return path
    part = path.with_suffix(".part")
    try:
        make_directory(path.parent)
        with FileLock(path.with_suffix(".lock"), mode=0o600):
            if not path.exists():
                try:
                    create(part).close()
                    write(part)
                    with part.open("rb+") as file:
                        os.fsync(file.fileno())  # else a power failure could leave an empty file
                    part.replace(path)
                finally:
                    part.unlink(missing_ok=True)
    except (OSError, ValueError, LookupError) as error:
        raise ModelError(f"{path} cannot be made: {error}") from error
    return path
