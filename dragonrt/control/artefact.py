"""A trained artefact: weights in `NAME.safetensors`, and their meaning in `NAME.json`.

The recipes in a checkout's `scripts/train` write the two files.
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
FORMATS = {"controller": "dragonrt controller 2", "verifier": "dragonrt verifier 1"}
"""The `format` in the record of each kind that `scripts/train/run` trains."""


def files(path: Path) -> tuple[Path, Path]:
    """Name the files of weights and record; `path` has one of their suffixes or none."""
    base = path.with_suffix("") if path.suffix in (".safetensors", ".json") else path
    return Path(f"{base}.safetensors"), Path(f"{base}.json")


def load(kind: str, path: Path, read: Callable[[Arrays, Record], T]) -> T:
    """Return the result of `read` on the finite float32 arrays and the record in the files.

    Raises ControlError for wrong files, and for a ValueError, KeyError or TypeError of `read`.
    """
    weights_file, record_file = files(path.expanduser())
    for file in (weights_file, record_file):
        if not file.is_file():
            raise ControlError(
                f"there is no {kind} {path}: {file.name} is missing; name one that is bundled "
                "or a file that is there"
            )
    try:
        arrays = load_file(weights_file)
        record = json.loads(record_file.read_text(encoding="utf-8"))
        if record["format"] != FORMATS[kind]:
            raise ValueError(f"its format is {record['format']!r}, not {FORMATS[kind]!r}")
        if not all(a.dtype == np.float32 and np.isfinite(a).all() for a in arrays.values()):
            raise ValueError("its weights are not finite float32 numbers")
        return read(arrays, record)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, ControlError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else f"{error}"
        reason = reason.splitlines()[0] if reason else type(error).__name__
        raise ControlError(f"{path} is not a {kind}: {reason}") from None
