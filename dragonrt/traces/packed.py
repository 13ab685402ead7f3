"""Values of the program as JSON and back, exactly: the inputs of a mode, for traces.

Dataclasses and messages are named by module and class; arrays are their bytes. A function, or an
array that would swell the file, leaves a gap: most of them are passed on unread, and reading one is
an error. A dataclass whose arrays are read says `packed_whole: ClassVar = True`; they are
compressed.
"""

import sys
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import blake2b
from json import dumps
from typing import Any, NoReturn

import numpy as np
from msgspec import Struct

from dragonrt.errors import DragonError

LONGEST_ARRAY = 64 * 1024
"""Bytes: more than the support of a distribution, less than a large vocabulary."""


class UnpackError(DragonError):
    """A packed value has a gap or is of another program; the line names it."""


class Gap:
    """Stands for a value that was too long for the trace. Any use raises UnpackError."""

    def __init__(self, missing: str) -> None:
        self.missing = missing

    def __getattr__(self, *_: Any) -> NoReturn:
        raise UnpackError(f"a value of the type {self.missing} is not in the trace: it is too long")

    __getitem__ = __len__ = __iter__ = __array__ = __bool__ = __call__ = __float__ = __getattr__


def pack(value: Any, *, whole: bool = False) -> Any:
    """Return the value as JSON; if `whole`, an array of any length."""
    name = f"{type(value).__module__}:{type(value).__qualname__}"
    match value:
        case Enum():
            return {"enum": name, "value": value.value}
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return {"bytes": b64encode(value).decode("ascii")}
        case list():
            return [pack(each) for each in value]
        case tuple():
            return {"tuple": [pack(each) for each in value]}
        case Mapping():
            return {"dict": [[pack(key), pack(each)] for key, each in value.items()]}
        case np.ndarray() | np.generic() if value.nbytes <= LONGEST_ARRAY:
            data = b64encode(value.tobytes()).decode("ascii")
            return {"array": data, "dtype": value.dtype.str, "shape": list(value.shape)}
        case np.ndarray() if whole:
            # The same byte of all numbers side by side: of most only a few differ.
            numbers = np.frombuffer(value.tobytes(), np.uint8).reshape(-1, value.itemsize)
            data = b64encode(zlib.compress(numbers.T.tobytes(), level=1)).decode("ascii")
            return {"planes": data, "dtype": value.dtype.str, "shape": list(value.shape)}
        case Gap(missing=missing):
            return {"gap": missing}
    if (is_dataclass(value) and not isinstance(value, type)) or isinstance(value, Struct):
        whole = getattr(value, "packed_whole", False)
        values = {name: getattr(value, name) for name in _names(type(value))}
        return {"of": name, "fields": {n: pack(each, whole=whole) for n, each in values.items()}}
    return {"gap": type(value).__name__}


def unpack(packed: Any) -> Any:
    """Return the value that was packed, with its gaps. Raises UnpackError for unknown forms."""
    match packed:
        case list():
            return [unpack(each) for each in packed]
        case {"bytes": str(data)}:
            return b64decode(data)
        case {"tuple": list(values)}:
            return tuple(unpack(each) for each in values)
        case {"dict": list(pairs)}:
            return {unpack(key): unpack(each) for key, each in pairs}
        case {"array": str(data), "dtype": dtype, "shape": shape}:
            return np.frombuffer(b64decode(data), np.dtype(dtype)).reshape(shape)[()]
        case {"planes": str(data), "dtype": dtype, "shape": shape}:
            kind, planes = np.dtype(dtype), zlib.decompress(b64decode(data))
            numbers = np.frombuffer(planes, np.uint8).reshape(kind.itemsize, -1).T.tobytes()
            return np.frombuffer(numbers, kind).reshape(shape)
        case {"enum": str(name), "value": value}:
            return _class(name)(value)
        case {"of": str(name), "fields": dict(values)}:
            kind = _class(name)
            held = {each: unpack(values[each]) for each in _names(kind)}
            if issubclass(kind, Struct):
                return kind(**held)
            made = object.__new__(kind)  # it was checked when it was made
            for each, value in held.items():
                object.__setattr__(made, each, value)
            return made
        case {"gap": str(name)}:
            return Gap(name)
        case dict():
            raise UnpackError("a value in the trace is of no known form")
    return packed


def digest(value: Any) -> str:
    """Return a hash that two values share if and only if they pack alike; an error by its line."""
    shown = str(value) if isinstance(value, Exception) else pack(value)
    return blake2b(dumps(shown, sort_keys=True).encode(), digest_size=8).hexdigest()


def _names(kind: Any) -> tuple[str, ...]:
    return getattr(kind, "__struct_fields__", None) or tuple(each.name for each in fields(kind))


def _class(name: str) -> Any:
    """Return the class of that name, in a loaded module: nothing is imported."""
    module, _, qualified = name.partition(":")
    found = getattr(sys.modules.get(module), qualified, None)
    if isinstance(found, type) and (is_dataclass(found) or issubclass(found, Enum | Struct)):
        return found
    raise UnpackError(f"there is no {name} here: the trace is of another version or mode")
