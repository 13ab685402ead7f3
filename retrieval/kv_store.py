"""The store of precomputed document KV: one file per chunk and model, in an index's directory.

No document is prefilled twice (DRAGON section 4). Arrays are stored by name, bit for bit. They can
be recomputed, so writes are not synced to disk; a checksum detects damage.
"""

import math
import os
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from . import RetrievalError
from .files import create, make_directory

Arrays = dict[str, NDArray[Any]]

_CHECKSUM = "crc32"
_TORN_S = 3600.0
"""The age of a file that no running write can be making."""
_SHARE = 8  # part of the room left that is written before all files are counted again
_USUAL, _USUAL_SHARE = 2 * 10**9, 10


def usual_limit(directory: Path) -> float:
    """Return the default limit of stored KV in bytes: 2 GB, or a tenth of the free disk if less."""
    place = next(each for each in (directory, *directory.parents) if each.exists())
    taken = sum(path.stat().st_size for path in directory.glob("kv/*/*.safetensors"))
    return min(_USUAL, (shutil.disk_usage(place).free + taken) / _USUAL_SHARE)


class KvStore:
    """The KV of an index's chunks for one model: `kv/<fingerprint>/<chunk digest>.safetensors`.

    Any number of processes read and write, also on many machines that share the directory. When the
    index's KV exceeds `limit` bytes, the least recently read files are deleted.
    """

    def __init__(self, directory: Path, fingerprint: str, limit: float = math.inf) -> None:
        """Open the store in an index's `directory`; `limit` is in bytes, for all its models."""
        self.directory = directory / "kv" / fingerprint
        self.limit = limit
        self._uncounted = math.inf if limit < math.inf else -math.inf

    def write(self, digest: str, arrays: Mapping[str, NDArray[Any]]) -> int:
        """Store a chunk's KV; return its bytes, 0 if over the limit. RetrievalError if it fails."""
        packed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        data = save(packed, metadata={_CHECKSUM: _checksum(packed)})
        if len(data) > self.limit:
            return 0
        path = self._path(digest)
        # In containers that share the directory every process may have the number 1.
        temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
        try:
            make_directory(self.directory)
            with create(temporary, new=True) as file:
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
        """Return how many bytes may still be stored: the limit minus the KV of all models."""
        return self.limit - self.taken()

    def taken(self) -> int:
        """Return how many bytes of KV are stored for the index, for all models together."""
        return sum(size for _, size, _ in self._files())

    def oldest(self) -> float:
        """Return the Unix time when the least recently read KV was read; now if none is stored."""
        return min((at for at, _, _ in self._files()), default=time.time_ns()) / 1e9

    def _evict(self, newest: Path) -> float:
        """Delete the least recently read files beyond the limit, and return the room left."""
        files = sorted(self._files())
        room = self.limit - sum(size for _, size, _ in files)
        for _, size, path in files:
            if room < 0 and path != newest:
                path.unlink(missing_ok=True)
                room += size
        return max(room, 0.0)

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        """Yield the time of last use, the size and the path of every file of any model."""
        for path in self.directory.parent.glob("*/*.safetensors"):
            with suppress(FileNotFoundError):  # another process has evicted it
                found = path.stat()
                yield found.st_mtime_ns, found.st_size, path

    def read(self, digest: str) -> Arrays | None:
        """Return the stored KV of the chunk `digest`, by array name; None if missing or damaged."""
        try:
            with safe_open(self._path(digest), framework="np") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                whole = (file.metadata() or {}).get(_CHECKSUM) == _checksum(arrays)
        except (OSError, SafetensorError):
            return None
        with suppress(OSError):  # a store that cannot be written evicts nothing
            os.utime(self._path(digest))
        return arrays if whole else None

    def stored(self) -> set[str]:
        """Return the digests of all chunks whose KV is stored for this model, damaged or not."""
        return {path.stem for path in self.directory.glob("*.safetensors")}

    def has(self, digest: str) -> bool:
        """Return whether KV of the chunk `digest` is stored for this model, damaged or not."""
        return self._path(digest).exists()

    def _path(self, digest: str) -> Path:
        return self.directory / f"{digest}.safetensors"


def prune_kv(directory: Path, live: Iterable[str]) -> None:
    """Delete, after an update, all models' stored KV of chunks whose digest is not in `live`."""
    kept = {f"{digest}.safetensors" for digest in live}
    torn_s = time.time() - _TORN_S
    for folder in (directory / "kv").glob("*/"):
        for path in [*folder.glob(".*.safetensors.*.tmp"), *folder.glob("*.safetensors")]:
            with suppress(OSError):  # mapped by a reader on Windows: the next update's turn
                written = path.suffix == ".safetensors"
                if path.name not in kept if written else path.stat().st_mtime < torn_s:
                    path.unlink()
        with suppress(OSError):  # it is not empty
            folder.rmdir()


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    value = 0
    for name in sorted(arrays):
        value = zlib.crc32(arrays[name].reshape(-1).view(np.uint8).data, value)
    return str(value)
