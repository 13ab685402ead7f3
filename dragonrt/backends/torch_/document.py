"""The keys and values of one document, computed once and stored beside its index."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragonrt.backends.torch_.pages import SharedPages
from dragonrt.errors import ModelError
from dragonrt.side import KvType

_TORCH_DTYPES = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float16): torch.float16,
    np.dtype(np.uint16): torch.bfloat16,  # numpy has no bfloat16: its bits travel as uint16
}
_LARGEST = 127
_SMALLEST = 1e-6  # a scale that float16 has, too


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class DocumentKV:
    """Keys and values of a document's tokens at positions 0 to length - 1, on the CPU.

    `keys[i]` and `values[i]` belong to layer i: [kv heads, length, head dim], in the model's dtype.
    If shared, `pages` holds a layer from byte `starts[i]` on: token by token, keys before values.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    pages: SharedPages | None = None
    starts: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        return int(self.keys[0].shape[1])

    @property
    def bytes(self) -> int:
        if self.pages is not None:
            return self.pages.bytes.numel()
        return sum(part.numel() * part.element_size() for part in self.keys + self.values)

    def dump(self, kv_type: KvType = "model") -> dict[str, NDArray[Any]]:
        """Return the same numbers as arrays named `keys.0`, `keys.1`, ..., `values.0`, ...

        bfloat16 is viewed as uint16. As int8, the numbers of a channel [head, :, dim] are rounded
        to -127 to 127 times its `keys.0.scale`, of the model's dtype (Liu et al. 2024, KIVI:
        outliers of keys keep to their channels).
        """
        arrays: dict[str, NDArray[Any]] = {}
        for name, tensor in zip(_names(len(self.keys)), self.keys + self.values, strict=True):
            if kv_type == "int8" and self.length:
                scale = (tensor.abs().amax(1, keepdim=True) / _LARGEST).clamp(min=_SMALLEST)
                arrays[f"{name}.scale"] = _plain(scale)
                tensor = (tensor / scale).round().clamp(-_LARGEST, _LARGEST).to(torch.int8)
            arrays[name] = _plain(tensor)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "DocumentKV":
        """Return the document that was dumped. Raises ModelError for other arrays.

        Whether the result fits a model is checked by `Backend.open`.
        """
        layers = sum(name.startswith("keys.") and name.count(".") == 1 for name in arrays)
        names = _names(layers)
        if not layers or {name.removesuffix(".scale") for name in arrays} != set(names):
            raise ModelError("stored document has other arrays than keys.N and values.N: re-index")
        parts = tuple(_tensor(arrays.get(name), arrays.get(f"{name}.scale")) for name in names)
        if len({(tensor.shape[1], tensor.dtype) for tensor in parts}) != 1:
            raise ModelError("layers of a stored document differ in length or dtype: re-index")
        return cls(parts[:layers], parts[layers:])


def _names(layers: int) -> list[str]:
    return [f"{kind}.{layer}" for kind in ("keys", "values") for layer in range(layers)]


def _plain(tensor: Tensor) -> NDArray[Any]:
    plain = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
    return plain.numpy()


def _tensor(array: NDArray[Any] | None, scale: NDArray[Any] | None = None) -> Tensor:
    # torch cannot express read-only memory, such as a mapped file's: copy
    if array is not None and array.ndim == 3:
        if array.dtype in _TORCH_DTYPES:
            return torch.from_numpy(array.copy()).view(_TORCH_DTYPES[array.dtype])
        if array.dtype == np.int8 and scale is not None and scale.shape == array[:, :1].shape:
            factors = _tensor(scale)
            return torch.from_numpy(array.copy()).to(factors.dtype) * factors
    raise ModelError("stored document holds an array of another shape or type: re-index")
