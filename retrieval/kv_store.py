"""The store of precomputed document KV: one file per chunk and model.

A chunk's keys and values are computed once, when it is indexed, and read when a question
needs them (DRAGON section 4): no document is prefilled twice. The store knows nothing of
models; arrays are kept by name, bit for bit.

What is lost can be computed again, so no write waits for the disk (15 ms a file). A file that a
loss of power left with wrong bytes is found by its checksum (0.6 ms for half a megabyte).
"""

import math
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from .failures import MissingKvError, RetrievalError

Arrays = dict[str, NDArray[Any]]

_FOLDER = "kv"
_TEMPORARY = ".*.tmp"
_CHECKSUM = "crc32"


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

    def write(self, digest: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Store a chunk's arrays, complete or not at all, unless they alone exceed the limit.

        bf16 travels as its uint16 bits.

        Raises:
            RetrievalError: the disk refuses.
        """
        packed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        data = save(packed, metadata={_CHECKSUM: _checksum(packed)})
        if len(data) > self.limit:
            return
        path = self._path(digest)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
            temporary.replace(path)
        except OSError as error:
            raise RetrievalError(f"cannot write {path}: {error.strerror or error}") from error
        self._evict(path)

    def size(self) -> int:
        """The bytes of all models' KV."""
        return sum(size for _, size, _ in self._files())

    def _evict(self, newest: Path) -> None:
        if math.isinf(self.limit):
            return
        files = sorted(self._files())
        excess = sum(size for _, size, _ in files) - self.limit
        for _, size, path in files:
            if excess > 0 and path != newest:
                path.unlink(missing_ok=True)
                excess -= size

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

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Those of `digests` whose KV is not there or whose file is truncated or malformed."""
        return [digest for digest in digests if not self._usable(digest)]

    def _usable(self, digest: str) -> bool:
        try:
            with safe_open(self._path(digest), framework="np"):
                return True
        except (OSError, SafetensorError):
            return False

    def _path(self, digest: str) -> Path:
        return self.directory / f"{digest}.safetensors"


@dataclass(frozen=True, slots=True)
class KvWriter:
    """What an update needs to compute the KV of new chunks: where to, and how.

    `compute` gets a chunk's text and its document's title and returns named arrays.
    """

    store: KvStore
    compute: Callable[[str, str], Mapping[str, NDArray[Any]]]


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
