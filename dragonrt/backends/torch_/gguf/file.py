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
from dataclasses import dataclass
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
_PIECE = 2**24  # bytes read, or numbers dequantised, at a time
TYPES = frozenset(
    GGMLQuantizationType[name]
    for name in [
        "F32",
        "F16",
        "BF16",
        "Q8_0",
        "Q4_0",
        "Q4_1",
        "Q5_0",
        "Q5_1",
        "Q4_K",
        "Q5_K",
        "Q6_K",
    ]
)
"""The tensor types that are read."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies in its file. `shape` has the outputs first, as torch has it."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int

    @property
    def row_bytes(self) -> int:
        """The bytes of one row: all numbers of the last dimension."""
        block, size = GGML_QUANT_SIZES[self.kind]
        return self.shape[-1] // block * size

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return math.prod(self.shape[:-1])


class GgufFile:
    """An open GGUF file. Tensors are read when they are asked for; nothing is kept of them."""

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    def __init__(self, path: Path) -> None:
        """Read the header. Raises ModelError if it is not one, or claims what the file lacks."""
        self.path = path
        try:
            self._file = opened(path).detach()
            weakref.finalize(self, self._file.close)
            self.size = path.stat().st_size
            self._lock = threading.Lock()
            with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = _Header(data, self.size)
                self.metadata, self.tensors = header.parse()
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise ModelError(f"{path} cannot be read as a GGUF file: {error}") from error
        except _BadHeaderError as error:
            raise ModelError(f"{path} is not a usable GGUF file: {error}") from error

    def forget(self) -> None:
        """Drop the metadata, whose vocabulary takes many megabytes."""
        self.metadata = {}

    def fingerprint(self) -> str:
        """SHA-256 of the whole file, as hexadecimal digits."""
        digest = hashlib.sha256()
        with self._lock:
            self._file.seek(0)
            while piece := self._file.read(_PIECE):
                digest.update(piece)
        return digest.hexdigest()

    def raw(self, tensor: GgufTensor, start: int = 0, stop: int | None = None) -> NDArray[np.uint8]:
        """The bytes of a tensor's rows: uint8 [rows, row_bytes].

        Raises:
            ModelError: the file has become shorter.
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
        """The numbers of a tensor's rows: float32 [rows, row length]."""
        return np.asarray(dequantize(self.raw(tensor, start, stop), tensor.kind), np.float32)

    def rows(self, tensor: GgufTensor, numbers: Sequence[int]) -> NDArray[Any]:
        """The numbers of some rows: float32 [len(numbers), row length]."""
        raw = np.concatenate([self.raw(tensor, number, number + 1) for number in numbers])
        return np.asarray(dequantize(raw, tensor.kind), np.float32)


class _BadHeaderError(Exception):
    """What a header claims cannot be."""


class _Header:
    """Reads a header from the front; never beyond the end of the file."""

    def __init__(self, data: mmap.mmap, size: int) -> None:
        self._data, self._size, self._at = data, size, 0

    def parse(self) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
        if self._take(4) != _MAGIC:
            raise _BadHeaderError("it does not begin with GGUF")
        version, number_of_tensors, number_of_values = struct.unpack("<IQQ", self._take(20))
        if version not in _VERSIONS:
            raise _BadHeaderError(f"version {version}, not 2 or 3 (or big-endian)")
        metadata: dict[str, Any] = {}
        for _ in range(number_of_values):
            key = self._string()
            if key in metadata:
                raise _BadHeaderError(f"{key} stands in it twice")
            metadata[key] = self._value(self._kind())
        infos = [self._tensor() for _ in self._bounded(number_of_tensors)]
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if (
            not isinstance(alignment, int)
            or not 0 < alignment <= _LARGEST_ALIGNMENT
            or alignment & (alignment - 1)
        ):
            raise _BadHeaderError(f"its tensors are aligned to {alignment}")
        start = -(-self._at // alignment) * alignment
        tensors = {info.name: self._placed(info, start) for info in infos}
        if len(tensors) < len(infos):
            raise _BadHeaderError("two of its tensors have one name")
        return metadata, tensors

    def _bounded(self, number: int) -> range:
        """`range(number)`, unless each entry having a byte would exceed the file."""
        if number > self._size:
            raise _BadHeaderError(f"it claims {number:,} entries in {self._size:,} bytes")
        return range(number)

    def _take(self, size: int) -> bytes:
        if size > self._size - self._at:
            raise _BadHeaderError("it is truncated")
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self, code: str) -> int:
        (number,) = struct.unpack(code, self._take(struct.calcsize(code)))
        return int(number)

    def _string(self) -> str:
        try:
            return self._take(self._number("<Q")).decode()
        except UnicodeDecodeError as error:
            raise _BadHeaderError("it has text that is no UTF-8") from error

    def _kind(self) -> GGUFValueType:
        number = self._number("<I")
        try:
            return GGUFValueType(number)
        except ValueError as error:
            raise _BadHeaderError(f"it has a value of unknown type {number}") from error

    def _value(self, kind: GGUFValueType) -> Any:
        """A number, a string, a list of strings, or an array of numbers."""
        if kind == GGUFValueType.STRING:
            return self._string()
        if kind == GGUFValueType.ARRAY:
            return self._array(self._kind(), self._number("<Q"))
        return self._numbers(kind, 1).item()

    def _array(self, kind: GGUFValueType, length: int) -> Any:
        if kind == GGUFValueType.STRING:
            return [self._string() for _ in self._bounded(length)]
        if kind == GGUFValueType.ARRAY:
            raise _BadHeaderError("it has an array of arrays")
        return self._numbers(kind, length)

    def _numbers(self, kind: GGUFValueType, count: int) -> NDArray[Any]:
        """Read little-endian numbers of a type, which is named as numpy's."""
        code = np.dtype(kind.name.lower()).newbyteorder("<")
        return np.frombuffer(self._take(count * code.itemsize), code)

    def _tensor(self) -> GgufTensor:
        """A tensor's entry, with its offset behind the header."""
        name = self._string()
        dimensions = self._number("<I")
        if not 0 < dimensions <= _MOST_DIMENSIONS:
            raise _BadHeaderError(f"{name} has {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}Q", self._take(8 * dimensions))[::-1]
        number = self._number("<I")
        if number not in set(TYPES):
            known = number in set(GGMLQuantizationType)
            kind = GGMLQuantizationType(number).name if known else number
            raise _BadHeaderError(f"{name} is of type {kind}, which is not read here")
        return GgufTensor(name, shape, GGMLQuantizationType(number), self._number("<Q"))

    def _placed(self, info: GgufTensor, start: int) -> GgufTensor:
        block, _ = GGML_QUANT_SIZES[info.kind]
        if 0 in info.shape or info.shape[-1] % block:
            raise _BadHeaderError(f"{info.name} has the shape {info.shape}")
        if start + info.offset + info.rows * info.row_bytes > self._size:
            raise _BadHeaderError(f"{info.name} ends behind the file's end: it is truncated")
        return GgufTensor(info.name, info.shape, info.kind, start + info.offset)
