"""Something trained, in two files of one name: `NAME.safetensors` and `NAME.json`.

The first holds the weights, the second what they mean and what they were trained on.
`scripts/train` writes them.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from dragonrt.errors import ControlError

T = TypeVar("T")
Arrays = Mapping[str, NDArray[Any]]
Record = Mapping[str, Any]
VERSIONS = {"controller": 2, "verifier": 1}
"""The kinds of networks that `scripts/train/run` trains, and their files' version."""


def files(path: Path) -> tuple[Path, Path]:
    """Name the files of weights and record; `path` has one of their suffixes or none."""
    base = path.with_suffix("") if path.suffix in (".safetensors", ".json") else path
    return Path(f"{base}.safetensors"), Path(f"{base}.json")


def form(kind: str) -> str:
    """Return what a record of this kind has as its `format`."""
    return f"dragonrt {kind} {VERSIONS[kind]}"


def load(kind: str, path: Path, read: Callable[[Arrays, Record], T]) -> T:
    """Return what `read` makes of the arrays and the record in the files.

    Raises ControlError with one line for what is wrong with the files, or for a ValueError,
    KeyError, TypeError or ControlError of `read`.
    """
    weights_file, record_file = files(path.expanduser())
    for file in (weights_file, record_file):
        if not file.is_file():
            raise ControlError(
                f"there is no {kind} {path}: {file.name} is missing; "
                f"make one with `scripts/train/run {kind}`"
            )
    try:
        arrays = load_file(weights_file)
        record = json.loads(record_file.read_text(encoding="utf-8"))
        if not isinstance(record, dict):
            raise ValueError("its record is not a JSON object")
        if record["format"] != form(kind):
            raise ValueError(f"its format is {record['format']!r}, not {form(kind)!r}")
        return read(arrays, record)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, ControlError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else f"{error}"
        reason = reason.splitlines()[0] if reason else type(error).__name__
        raise ControlError(f"{path} is not a {kind}: {reason}") from None


def finite(array: NDArray[Any]) -> NDArray[np.float32]:
    """Return the array. Raises ValueError unless it holds finite float32 numbers."""
    if array.dtype != np.float32 or not np.isfinite(array).all():
        raise ValueError("its weights are not finite float32 numbers")
    return array
