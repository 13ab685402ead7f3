"""Implements the contract of a backend over a forward in torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragonrt.backends.backend import Feed, ModelInfo, Rows, Tokenizer
from dragonrt.backends.torch_.document import DocumentKV
from dragonrt.errors import ModelError


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer stores per token: `heads` keys of `key_dim` and values of `value_dim`."""

    heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes of a model."""

    layers: tuple[LayerShape, ...]
    vocabulary: int
    context_length: int
    dtype: torch.dtype
    device: torch.device


Output = tuple[Tensor, Tensor]
"""Of every new token of every row, or of the last one only: log-probabilities of what follows,
float32 [rows, positions, vocabulary], and the input of the output layer [rows, positions, hidden].
"""


class TorchRows(Rows, Protocol):
    """Rows of documents that fit the model; see `Backend.open` and `memory`."""

    def __init__(
        self, geometry: Geometry, documents: Sequence[DocumentKV], capacity: int
    ) -> None: ...

    @staticmethod
    def memory(geometry: Geometry, documents: Sequence[DocumentKV], capacity: int) -> int: ...


class Decoder(Protocol):
    """A forward: weights that turn tokens into log-probabilities and write into its rows."""

    geometry: Geometry
    version: str
    exact_blocks: bool

    @property
    def rows(self) -> type[TorchRows]:
        """Return the class of its rows."""

    def forward(self, feeds: Sequence[Feed]) -> list[Output | None]:
        """See `Backend.forward`."""


class TorchLogits:
    """Implements RowLogits: log-probabilities float32 [rows, vocabulary], `hidden` [rows, size]."""

    def __init__(self, log_probabilities: Tensor, hidden: Tensor) -> None:
        self._log_probabilities, self._hidden = log_probabilities, hidden

    def mixed(self, log_weights: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.inference_mode():
            logs = torch.from_numpy(log_weights)[:, None].to(self._log_probabilities.device)
            mixed = (self._log_probabilities + logs).exp_().sum(dim=0)
        return mixed.numpy(force=True)

    def at(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        places = torch.from_numpy(tokens).to(self._log_probabilities.device)
        return self._log_probabilities.index_select(1, places).numpy(force=True)

    def probability(self, token: int) -> NDArray[np.float64]:
        return self._log_probabilities[:, token].double().exp().numpy(force=True)

    def hidden(self) -> NDArray[np.float32]:
        return self._hidden.float().numpy(force=True)

    def copy(self) -> "TorchLogits":
        return TorchLogits(self._log_probabilities.clone(), self._hidden.clone())


@dataclass(frozen=True, slots=True)
class TorchBackend:
    """Implements Backend on a decoder."""

    decoder: Decoder
    info: ModelInfo
    tokenizer: Tokenizer

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> DocumentKV:
        return DocumentKV.from_arrays(arrays)

    def empty(self) -> DocumentKV:
        shapes, dtype = self.decoder.geometry.layers, self.decoder.geometry.dtype
        return DocumentKV(
            tuple(torch.empty(each.heads, 0, each.key_dim, dtype=dtype) for each in shapes),
            tuple(torch.empty(each.heads, 0, each.value_dim, dtype=dtype) for each in shapes),
        )

    def memory(self, documents: Sequence[Any], capacity: int) -> int:
        return self.decoder.rows.memory(self.decoder.geometry, documents, capacity)

    def open(self, documents: Sequence[Any], capacity: int) -> Rows:
        geometry = self.decoder.geometry
        sizes = [(each.heads, each.key_dim) for each in geometry.layers]
        sizes += [(each.heads, each.value_dim) for each in geometry.layers]
        for each in documents:
            parts = each.keys + each.values
            found = [(part.shape[0], part.shape[2]) for part in parts]
            if found != sizes or parts[0].dtype != geometry.dtype:
                raise ModelError("a document's stored KV was made by another model: re-index it")
        with torch.inference_mode():
            return self.decoder.rows(geometry, documents, capacity)

    def forward(self, feeds: Sequence[Feed]) -> list[Sequence[TorchLogits] | None]:
        with torch.inference_mode():
            if self.info.exact_blocks:
                outputs = self.decoder.forward(feeds)
            else:  # alone, so that the bits do not depend on who shares the forward
                outputs = [self.decoder.forward([feed])[0] for feed in feeds]
            return [None if output is None else _by_token(*output) for output in outputs]


def _by_token(log_probabilities: Tensor, hidden: Tensor) -> list[TorchLogits]:
    return list(map(TorchLogits, log_probabilities.unbind(1), hidden.unbind(1)))
