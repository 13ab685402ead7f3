"""The keys and values of one document, computed once and stored beside its index."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragonrt.errors import ModelError

_TORCH_DTYPES = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float16): torch.float16,
    np.dtype(np.uint16): torch.bfloat16,  # numpy has no bfloat16: its bits travel as uint16
}


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class DocumentKV:
    """Keys and values of a document's tokens at positions 0 to length - 1, on the CPU.

    `keys[i]` and `values[i]` belong to layer i: [kv heads, length, head dim], in the model's dtype.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @property
    def length(self) -> int:
        return int(self.keys[0].shape[1])

    def dump(self) -> dict[str, NDArray[Any]]:
        """Return the same numbers as arrays named `keys.0`, `keys.1`, ..., `values.0`, ...

        bfloat16 is viewed as uint16.
        """
        parts = zip(_names(len(self.keys)), self.keys + self.values, strict=True)
        return {name: _plain(tensor) for name, tensor in parts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "DocumentKV":
        """Return the document that was dumped. Raises ModelError for other arrays.

        Whether the result fits a model is checked by `Backend.open`.
        """
        layers = len(arrays) // 2
        names = _names(layers)
        if not layers or arrays.keys() != set(names):
            raise ModelError("stored document has other arrays than keys.N and values.N: re-index")
        parts = tuple(_tensor(arrays[name]) for name in names)
        if len({(tensor.shape[1], tensor.dtype) for tensor in parts}) != 1:
            raise ModelError("layers of a stored document differ in length or dtype: re-index")
        return cls(parts[:layers], parts[layers:])


def _names(layers: int) -> list[str]:
    return [f"{kind}.{layer}" for kind in ("keys", "values") for layer in range(layers)]


def _plain(tensor: Tensor) -> NDArray[Any]:
    plain = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
    return plain.numpy()


def _tensor(array: NDArray[Any]) -> Tensor:
    if array.ndim != 3 or array.dtype not in _TORCH_DTYPES:
        raise ModelError("stored document holds an array of another shape or type: re-index")
    # torch cannot express read-only memory, such as a mapped file's: copy
    return torch.from_numpy(array.copy()).view(_TORCH_DTYPES[array.dtype])
