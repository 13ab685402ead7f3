"""Store the KV of documents and of an answer's rows, for forwards of a transformers model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin
from typing_extensions import override

from dragonrt.backends.backend import Preempted, Preemption, Rows
from dragonrt.backends.resources import KvPool
from dragonrt.errors import ModelError

_TORCH_DTYPES = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float16): torch.float16,
    np.dtype(np.uint16): torch.bfloat16,  # numpy has no bfloat16: its bits travel as uint16
}


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The KV of a token in one layer: `heads` keys of size `key_dim` and values of `value_dim`."""

    heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """The KV's shape in each layer of a model, its vocabulary, context, number type and device."""

    layers: tuple[LayerShape, ...]
    vocabulary: int
    context_length: int
    dtype: torch.dtype
    device: torch.device


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
        """Return arrays `keys.0`, `keys.1`, ..., `values.0`, ...; bfloat16 as bits in uint16."""
        parts = zip(_names(len(self.keys)), self.keys + self.values, strict=True)
        return {name: _plain(tensor) for name, tensor in parts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "DocumentKV":
        """Return the document that `dump` turned into `arrays`; ModelError for other arrays."""
        layers = len(arrays) // 2
        names = _names(layers)
        if not layers or arrays.keys() != set(names):
            raise ModelError("stored document has other arrays than keys.N and values.N: re-index")
        parts = tuple(_tensor(arrays[name]) for name in names)
        if len({(tensor.shape[1], tensor.dtype) for tensor in parts}) != 1:
            raise ModelError("layers of a stored document differ in length or dtype: re-index")
        return cls(parts[:layers], parts[layers:])


class PaddedKvCache(Rows):
    """The KV of an answer's rows, one per document, as tensors of a transformers model.

    A token has a fixed column, so a rejected draft is simply overwritten. Documents are padded on
    the left to end at column `width`, a layout for which every architecture has masks.
    """

    def __init__(
        self, geometry: Geometry, documents: Sequence[DocumentKV], capacity: int, pool: KvPool
    ) -> None:
        lengths = [document.length for document in documents]
        self.width = max(lengths)
        self.padding = self.width - torch.tensor(lengths, device=geometry.device)
        sizes = (each.heads * (each.key_dim + each.value_dim) for each in geometry.layers)
        column = len(documents) * sum(sizes) * geometry.dtype.itemsize
        self._room = pool.room((self.width + capacity) * column)
        self._layers = [
            _PlacedLayer(len(documents), shape, self.width + capacity, geometry)
            for shape in geometry.layers
        ]
        self._capacity = capacity
        for row, document in enumerate(documents):
            place = slice(self.width - document.length, self.width)
            for layer, *stored in zip(self._layers, document.keys, document.values, strict=True):
                for buffer, part in zip(layer.buffers, stored, strict=True):
                    buffer[row, :, place] = part

    @torch.inference_mode()
    @override
    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` tokens in total after the rows' documents, before a forward."""
        if tokens > self._capacity:
            grown = max(tokens, 2 * self._capacity)
            more = (0, 0, 0, grown - self._capacity)
            for layer in self._layers:
                layer.buffers = [functional.pad(buffer, more) for buffer in layer.buffers]
            self._capacity = grown

    @override
    def document(self, row: int, length: int) -> DocumentKV:
        place = slice(self.width, self.width + length)
        keys, values = (
            tuple(layer.buffers[kind][row, :, place].contiguous().cpu() for layer in self._layers)
            for kind in range(2)
        )
        return DocumentKV(keys, values)

    def cache_for_forward(self, start: int, preemption: Preemption) -> Cache:
        """Return a Cache for a forward from column `start`; it raises Preempted if preempted."""
        for layer in self._layers:
            layer.start, layer.preemption = start, preemption
        return Cache(layers=list(self._layers))


class _PlacedLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # it has no types
    """One layer's buffers, which attention modules write by `update`; preemptions stop it."""

    is_sliding = False

    def __init__(self, rows: int, shape: LayerShape, columns: int, geometry: Geometry) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # it has no types
        self.is_initialized = True
        self.start = 0
        self.preemption = Preemption()
        # zeros, for masked columns are multiplied by zero and must be finite
        dtype, device = geometry.dtype, geometry.device
        self.buffers = [
            torch.zeros(rows, shape.heads, columns, size, dtype=dtype, device=device)
            for size in (shape.key_dim, shape.value_dim)
        ]

    @override
    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the buffers are there from the start."""

    @override
    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_options: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the new columns and return all of them up to the last new one."""
        if self.preemption.requested:
            raise Preempted
        stop = self.start + key_states.shape[2]
        keys, values = (buffer[:, :, :stop] for buffer in self.buffers)
        keys[:, :, self.start :] = key_states
        values[:, :, self.start :] = value_states
        return keys, values

    @override
    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return how many columns a mask must cover, and the first of them."""
        return self.start + query_length, 0

    @override
    def get_seq_length(self) -> int:
        """Return how many columns are stored before this forward."""
        return self.start

    @override
    def get_max_length(self) -> int:
        return int(self.buffers[0].shape[2])


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
