"""GGUF files: metadata and tensors, checked against the size of the file before they are read.

The format's constants and reference dequantisation are those of the package `gguf`. Its reader is
not used: it takes 2.4 s for a vocabulary of 49,152 (one array per element), and loops without end
over an array that claims more elements than the file has.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import hashlib
import math
import mmap
import struct
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, dequantize
from numpy.typing import NDArray

from dragonrt.errors import ModelError
from retrieval.files import opened

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST_DIMENSIONS = 4
_DEFAULT_ALIGNMENT = 32
_LARGEST_ALIGNMENT = 2**20
_AT_ONCE = 2**21  # numbers that are dequantised together
_NAMES = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
TYPES = frozenset(GGMLQuantizationType[name] for name in ("F32", "F16", "BF16", *_NAMES))
"""The tensor types that are read."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor's place in its file. `shape` has the outputs first, as torch has it."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int

    @property
    def row_bytes(self) -> int:
        """Return the bytes of one row: all numbers of the last dimension."""
        block, size = GGML_QUANT_SIZES[self.kind]
        return self.shape[-1] // block * size

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return math.prod(self.shape[:-1])


class GgufFile:
    """An open GGUF file. Tensors are read when they are asked for; nothing is kept of them."""

    def __init__(self, path: Path) -> None:
        """Read the header. Raises ModelError if it is not one, or claims what the file lacks."""
        self.path = path
        try:
            self._file = opened(path).detach()
            weakref.finalize(self, self._file.close)
            self._lock = threading.Lock()
            with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                self.metadata, self.tensors = _Header(data, path.stat().st_size).parse()
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise ModelError(f"{path} cannot be read as a GGUF file: {error}") from error

    def fingerprint(self) -> str:
        """Return the SHA-256 of the whole file, as hexadecimal digits."""
        with self._lock:
            self._file.seek(0)
            return hashlib.file_digest(self._file, "sha256").hexdigest()

    def raw(self, tensor: GgufTensor, start: int = 0, stop: int | None = None) -> NDArray[np.uint8]:
        """Return the bytes of a tensor's rows: uint8 [rows, row_bytes].

        Raises ModelError if the file has become shorter.
        """
        rows = (tensor.rows if stop is None else stop) - start
        found = bytearray(rows * tensor.row_bytes)
        view, done = memoryview(found), 0
        with self._lock:
            self._file.seek(tensor.offset + start * tensor.row_bytes)
            while done < len(view) and (count := self._file.readinto(view[done:])):
                done += count
        if done < len(view):
            raise ModelError(f"{self.path} was changed while it was in use: restart")
        return np.frombuffer(found, np.uint8).reshape(rows, -1)

    def dense(self, tensor: GgufTensor, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Return a tensor's rows as far as it has them: float32 [rows, row length]."""
        stop = min(tensor.rows, stop or tensor.rows)
        found = np.empty((stop - start, tensor.shape[-1]), np.float32)
        step = max(1, _AT_ONCE // tensor.shape[-1])
        for first in range(start, stop, step):
            raw = self.raw(tensor, first, min(first + step, stop))
            found[first - start : first - start + step] = dequantize(raw, tensor.kind)
        return found

    def rows(self, tensor: GgufTensor, numbers: Sequence[int]) -> NDArray[Any]:
        """Return the numbers of some rows: float32 [len(numbers), row length]."""
        raw = np.concatenate([self.raw(tensor, number, number + 1) for number in numbers])
        return np.asarray(dequantize(raw, tensor.kind), np.float32)


class _Header:
    """Reads a header from the front, never beyond the file's end. Raises ValueError."""

    def __init__(self, data: mmap.mmap, size: int) -> None:
        self._data, self._size, self._at = data, size, 0

    def parse(self) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
        if self._take(4) != _MAGIC:
            raise ValueError("it does not begin with GGUF")
        version, number_of_tensors, number_of_values = struct.unpack("<IQQ", self._take(20))
        if version not in _VERSIONS:
            raise ValueError(f"version {version}, not 2 or 3 (or big-endian)")
        metadata: dict[str, Any] = {}
        for _ in range(number_of_values):
            key = self._string()
            if key in metadata:
                raise ValueError(f"{key} stands in it twice")
            metadata[key] = self._value(self._kind())
        infos = [self._tensor() for _ in self._bounded(number_of_tensors)]
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        fits = isinstance(alignment, int) and 0 < alignment <= _LARGEST_ALIGNMENT
        if not fits or alignment & (alignment - 1):
            raise ValueError(f"its tensors are aligned to {alignment}")
        start = -(-self._at // alignment) * alignment
        tensors = {info.name: self._placed(info, start) for info in infos}
        if len(tensors) < len(infos):
            raise ValueError("two of its tensors have one name")
        return metadata, tensors

    def _bounded(self, number: int) -> range:
        """Return `range(number)`, unless each entry having a byte would exceed the file."""
        if number > self._size:
            raise ValueError(f"it claims {number:,} entries in {self._size:,} bytes")
        return range(number)

    def _take(self, size: int) -> bytes:
        if size > self._size - self._at:
            raise ValueError("it is truncated")
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self, code: str) -> int:
        (number,) = struct.unpack(code, self._take(struct.calcsize(code)))
        return int(number)

    def _string(self) -> str:
        return self._take(self._number("<Q")).decode()

    def _kind(self) -> GGUFValueType:
        return GGUFValueType(self._number("<I"))

    def _value(self, kind: GGUFValueType) -> Any:
        """Read a number, a string, a list of strings, or an array of numbers."""
        if kind == GGUFValueType.STRING:
            return self._string()
        if kind != GGUFValueType.ARRAY:
            return self._numbers(kind, 1).item()
        kind, length = self._kind(), self._number("<Q")
        if kind == GGUFValueType.STRING:
            return [self._string() for _ in self._bounded(length)]
        if kind == GGUFValueType.ARRAY:
            raise ValueError("it has an array of arrays")
        return self._numbers(kind, length)

    def _numbers(self, kind: GGUFValueType, count: int) -> NDArray[Any]:
        """Read little-endian numbers of a type, which is named as numpy's."""
        code = np.dtype(kind.name.lower()).newbyteorder("<")
        return np.frombuffer(self._take(count * code.itemsize), code)

    def _tensor(self) -> GgufTensor:
        """Read a tensor's entry, with its offset behind the header."""
        name, dimensions = self._string(), self._number("<I")
        if not 0 < dimensions <= _MOST_DIMENSIONS:
            raise ValueError(f"{name} has {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}Q", self._take(8 * dimensions))[::-1]
        kind = GGMLQuantizationType(self._number("<I"))
        if kind not in TYPES:
            raise ValueError(f"{name} is of type {kind.name}, which is not read here")
        return GgufTensor(name, shape, kind, self._number("<Q"))

    def _placed(self, info: GgufTensor, start: int) -> GgufTensor:
        block, _ = GGML_QUANT_SIZES[info.kind]
        if 0 in info.shape or info.shape[-1] % block:
            raise ValueError(f"{info.name} has the shape {info.shape}")
        if start + info.offset + info.rows * info.row_bytes > self._size:
            raise ValueError(f"{info.name} ends behind the file's end: it is truncated")
        return replace(info, offset=start + info.offset)
