"""Values of the program as JSON and back, exactly: the inputs of a mode, for traces.

Dataclasses are named by module and class; arrays are their bytes. A function, or an array that
would swell the file, leaves a gap, which `unpack` reports.
"""

import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import blake2b
from json import dumps
from typing import Any

import numpy as np

from dragonrt.errors import DragonError

LONGEST_ARRAY = 64 * 1024
"""Bytes: more than the support of a distribution, less than a large vocabulary."""


class UnpackError(DragonError):
    """A packed value has a gap or is of another program; the line names it."""


def pack(value: Any) -> Any:
    """Return the value as JSON."""
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
    if is_dataclass(value) and not isinstance(value, type):
        return {
            "of": name,
            "fields": {each.name: pack(getattr(value, each.name)) for each in fields(value)},
        }
    return {"gap": type(value).__name__}


def unpack(packed: Any) -> Any:
    """Return the value that was packed. Raises UnpackError if there is a gap."""
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
        case {"enum": str(name), "value": value}:
            return _class(name)(value)
        case {"of": str(name), "fields": dict(values)}:
            kind = _class(name)
            made = object.__new__(kind)  # it was checked when it was made
            for each in fields(kind):
                object.__setattr__(made, each.name, unpack(values[each.name]))
            return made
        case {"gap": name}:
            raise UnpackError(f"a value of the type {name} is not in the trace: it is too long")
        case dict():
            raise UnpackError("a value in the trace is of no known form")
    return packed


def digest(value: Any) -> str:
    """Return a hash that two values share if and only if they pack alike; an error by its line."""
    shown = str(value) if isinstance(value, Exception) else pack(value)
    return blake2b(dumps(shown, sort_keys=True).encode(), digest_size=8).hexdigest()


def _class(name: str) -> Any:
    """Return the dataclass or enum of that name, in a loaded module: nothing is imported."""
    module, _, qualified = name.partition(":")
    found = getattr(sys.modules.get(module), qualified, None)
    if isinstance(found, type) and (is_dataclass(found) or issubclass(found, Enum)):
        return found
    raise UnpackError(f"there is no {name} here: the trace is of another version or mode")
