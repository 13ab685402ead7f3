"""The store of precomputed document KV: one file per chunk and model.

A chunk's keys and values are computed once, and read when a question needs them (DRAGON section
4): no document is prefilled twice. The store knows nothing of models; arrays are kept by name, bit
for bit.

What is lost can be computed again, so no write waits for the disk (15 ms a file). A file that a
loss of power left with wrong bytes is found by its checksum (0.6 ms for half a megabyte).
"""

import math
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from .failures import MissingKvError, RetrievalError
from .files import create, make_directory

Arrays = dict[str, NDArray[Any]]

_FOLDER = "kv"
_TEMPORARY = ".*.tmp"
_CHECKSUM = "crc32"
_SHARE = 8
"""That part of the room that is left is written before all files are counted again."""


class KvStore:
    """The KV of an index's chunks for one model: `kv/<fingerprint>/<chunk digest>.safetensors`.

    Any number of processes read and write. Beyond the limit what was not read for longest goes.
    """

    def __init__(self, directory: Path, fingerprint: str, limit: float = math.inf) -> None:
        """`directory` is the index's, `fingerprint` names the model (letters, digits, - _ .).

        `limit` is in bytes, for all models of the index together.
        """
        self.directory = directory / _FOLDER / fingerprint
        self.limit = limit
        self._uncounted = math.inf if limit < math.inf else -math.inf

    def write(self, digest: str, arrays: Mapping[str, NDArray[Any]]) -> int:
        """Store a chunk's arrays, complete or not at all, unless they alone exceed the limit.

        bf16 travels as its uint16 bits. Returns the bytes that were written.

        Raises:
            RetrievalError: the disk refuses.
        """
        packed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        data = save(packed, metadata={_CHECKSUM: _checksum(packed)})
        if len(data) > self.limit:
            return 0
        path = self._path(digest)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            make_directory(self.directory)
            with create(temporary) as file:
                file.write(data)
            temporary.replace(path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise RetrievalError(
                f"cannot write {self.directory}: {error.strerror or error}"
            ) from error
        self._uncounted += len(data)
        if self._uncounted > 0:
            self._uncounted = -self._evict(path) / _SHARE
        return len(data)

    def room(self) -> float:
        """The bytes that fit beside the KV of all models."""
        return self.limit - sum(size for _, size, _ in self._files())

    def _evict(self, newest: Path) -> float:
        """Delete what was not read for longest, where there is too much; the room that is left."""
        files = sorted(self._files())
        room = self.limit - sum(size for _, size, _ in files)
        for _, size, path in files:
            if room < 0 and path != newest:
                path.unlink(missing_ok=True)
                room += size
        return max(room, 0.0)

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        """When it was last used, its size and its path, of every file of any model."""
        for path in self.directory.parent.glob("*/*.safetensors"):
            with suppress(FileNotFoundError):  # another process has evicted it
                found = path.stat()
                yield found.st_mtime_ns, found.st_size, path

    def read(self, digest: str) -> Arrays:
        """A chunk's arrays; what is written into them stays in this process.

        Raises:
            MissingKvError: there is no file for this chunk, or it is damaged.
        """
        try:
            with safe_open(self._path(digest), framework="np") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                whole = (file.metadata() or {}).get(_CHECKSUM) == _checksum(arrays)
        except (OSError, SafetensorError):
            whole = False
        if not whole:
            raise MissingKvError(
                f"no KV of the chunk {digest}: index the documents again to compute it"
            )
        with suppress(OSError):  # of a store that is only read, nothing is evicted
            os.utime(self._path(digest))
        return arrays

    def stored(self) -> set[str]:
        """The chunks whose KV is there, whether or not it can be read."""
        return {path.stem for path in self.directory.glob("*.safetensors")}

    def has(self, digest: str) -> bool:
        """Whether a chunk's KV is `stored`."""
        return self._path(digest).exists()

    def _path(self, digest: str) -> Path:
        return self.directory / f"{digest}.safetensors"


def prune_kv(directory: Path, live: Iterable[str]) -> None:
    """Delete, for every model, the KV of chunks that are not in `live`, and torn writes.

    A deleted document leaves no trace in the KV of any model. `directory` is the index's.
    """
    kept = {f"{digest}.safetensors" for digest in live}
    for folder in (directory / _FOLDER).glob("*"):
        for path in [*folder.glob(_TEMPORARY), *folder.glob("*.safetensors")]:
            if path.name not in kept:
                with suppress(OSError):  # mapped by a reader on Windows: the next update's turn
                    path.unlink()
        if not any(folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    value = 0
    for name in sorted(arrays):
        value = zlib.crc32(arrays[name].reshape(-1).view(np.uint8).data, value)
    return str(value)
