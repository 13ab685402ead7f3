"""Something trained, in two files of one name: `NAME.safetensors` and `NAME.json`.

The first holds the weights, the second what they mean and what they were trained on.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from dragonrt.errors import ControlError

T = TypeVar("T")
Arrays = Mapping[str, NDArray[Any]]
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Artefact:
    """One kind of trained network: its name in `scripts/train/run NAME`, its files' version."""

    name: str
    version: int

    @property
    def format(self) -> str:
        """What a record of this kind says of itself."""
        return f"dragonrt {self.name} {self.version}"

    def save(self, path: Path, arrays: Arrays, record: Record) -> tuple[Path, Path]:
        """Write the two files of that name. Raises ControlError if that cannot be done."""
        weights_file, record_file = _files(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            weights_file.write_bytes(save(dict(arrays)))
            text = json.dumps({"format": self.format, **record}, indent=2, ensure_ascii=False)
            record_file.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise ControlError(
                f"cannot write the {self.name} {path}: {error.strerror or error}"
            ) from None
        return weights_file, record_file

    def load(self, path: Path, read: Callable[[str, Arrays, Record], T]) -> T:
        """What `read` makes of the name, arrays and record that `save` wrote.

        Either of the two files, or their name without suffix, is `path`. Raises ControlError with
        one line that says what is wrong with the files, or what `read` found wrong with them: it
        may raise ValueError, KeyError, TypeError or ControlError.
        """
        weights_file, record_file = _files(path.expanduser())
        for file in (weights_file, record_file):
            if not file.is_file():
                raise ControlError(
                    f"there is no {self.name} {path}: {file.name} is missing; "
                    f"make one with `scripts/train/run {self.name}`"
                )
        try:
            arrays = load_file(weights_file)
            record = json.loads(record_file.read_text(encoding="utf-8"))
            if not isinstance(record, dict):
                raise ValueError("its record is not a JSON object")
            if record["format"] != self.format:
                raise ValueError(f"its format is {record['format']!r}, not {self.format!r}")
            return read(weights_file.stem, arrays, record)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError, ControlError) as error:
            raise ControlError(f"{path} is not a {self.name}: {_reason(error)}") from None


def finite(array: NDArray[Any]) -> NDArray[np.float32]:
    """The array, which must hold finite float32 numbers. Raises ValueError if it does not."""
    if array.dtype != np.float32 or not np.isfinite(array).all():
        raise ValueError("its weights are not finite float32 numbers")
    return array


def _files(path: Path) -> tuple[Path, Path]:
    """The files of the weights and of the record of a name, with one of their suffixes or none."""
    base = path.with_suffix("") if path.suffix in (".safetensors", ".json") else path
    return Path(f"{base}.safetensors"), Path(f"{base}.json")


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
