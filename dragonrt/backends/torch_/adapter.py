"""Low-rank adapters of linear layers (Hu et al. 2021, LoRA), in the layout of the package `peft`.

y = W x + s B (A x), with s = alpha / r, or alpha / √r with `use_rslora`. Beside rounded weights an
adapter stays a product of its own: rounded into them it is partly lost (SPEC section 5).
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from dragonrt.backends.torch_.linear import Linear, Pointwise, computes_rows, sample_weight
from dragonrt.errors import ModelError
from retrieval.files import read_bytes

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_KEY = re.compile(r"base_model\.model\.(.+)\.lora_(A|B)\.weight")
_UNREAD = ("use_dora", "modules_to_save", "layer_replication", "trainable_token_indices")
_STEP = 32  # the kernel of 8 bits reads so many numbers of a row at a time
_LARGEST = 127


@dataclass(frozen=True, slots=True)
class Update:
    """One layer's s B A: `down` is A [r, inputs], `up` is s B [outputs, r], both float32."""

    down: Tensor
    up: Tensor

    def dense(self) -> Tensor:
        """Return what is added to W."""
        return self.up @ self.down


@dataclass(frozen=True, slots=True)
class Adapter:
    """The updates by the names of transformers' modules, and the content's fingerprint."""

    updates: Mapping[str, Update]
    fingerprint: str

    @classmethod
    def read(cls, directory: Path) -> "Adapter":
        """Read a directory. Raises ModelError if it holds no LoRA that can be applied."""
        try:
            text = read_bytes(directory / _CONFIG)
            config = json.loads(text)
            content = read_bytes(directory / _WEIGHTS, math.inf)
            tensors = load_file(directory / _WEIGHTS)
            _check_options(config)
            found: dict[str, dict[str, Tensor]] = {}
            for key, tensor in tensors.items():
                match = _KEY.fullmatch(key)
                if match is None or tensor.ndim != 2:
                    raise ValueError(f"{key} is no part of a plain LoRA")
                found.setdefault(match[1], {})[match[2]] = tensor.float()
            if not found:
                raise ValueError("it adapts no layer")
            updates = {name: _update(config, name, pair) for name, pair in found.items()}
        except (OSError, ValueError, KeyError, TypeError, re.error, SafetensorError) as error:
            raise ModelError(f"{directory} cannot be read as an adapter: {error}") from error
        return cls(updates, hashlib.sha256(text + content).hexdigest())

    def fit(self, model: Any) -> None:
        """Raise ModelError unless every update is of a linear layer of this model."""
        modules = dict(model.named_modules())
        for name, update in self.updates.items():
            if name == "lm_head":
                raise ModelError("the adapter changes lm_head: only layers within can be adapted")
            module, shape = modules.get(name), None
            if isinstance(module, (nn.Linear, Conv1D)):
                shape = tuple(module.weight.shape)[:: 1 if isinstance(module, nn.Linear) else -1]
            its = (len(update.up), update.down.shape[1])
            if shape != its:
                raise ModelError(f"the adapter is another model's: {name} is {shape}, not {its}")

    def merge(self, model: Any) -> None:
        """Add the updates to a model's weights, in place."""
        for name, update in self.updates.items():
            module = model.get_submodule(name)
            weight, change = module.weight, update.dense()
            change = change if isinstance(module, nn.Linear) else change.T
            weight.data = (weight.float() + change.to(weight.device)).to(weight.dtype)


def _check_options(config: Mapping[str, Any]) -> None:
    """Raise ValueError for options that are not read."""
    if config["peft_type"] != "LORA":
        raise ValueError(f"it is of the type {config['peft_type']}, not LORA")
    if config.get("bias", "none") != "none":
        raise ValueError(f"it trains biases ({config['bias']}), which is not read")
    if given := [name for name in _UNREAD if config.get(name)]:
        raise ValueError(f"it uses {given[0]}, which is not read")


def _update(config: Mapping[str, Any], name: str, pair: Mapping[str, Tensor]) -> Update:
    """Return the update of a layer, whose rank and scale the configuration gives."""
    down, up = pair["A"], pair["B"]
    rank = _of_pattern(config, "rank_pattern", "r", name)
    alpha = _of_pattern(config, "alpha_pattern", "lora_alpha", name)
    if (rank, rank) != (len(down), up.shape[1]) or not math.isfinite(alpha):
        raise ValueError(f"{name} has rank {rank:g}, and stores {len(down)} and {up.shape[1]}")
    scale = alpha / (rank**0.5 if config.get("use_rslora") else rank)
    return Update(down, up * scale)


def _of_pattern(config: Mapping[str, Any], pattern: str, otherwise: str, name: str) -> float:
    """Return the number of the first pattern that a layer's name ends with, else of all layers."""
    numbers = config.get(pattern) or {}
    key = next((key for key in numbers if re.fullmatch(rf"(.*\.)?({key})", name)), None)
    return float(config[otherwise] if key is None else numbers[key])


class AdaptedLinear:
    """A product with the updates of the layers that it joins beside it."""

    def __init__(
        self,
        product: Pointwise,
        updates: Sequence[Update | None],
        outputs: Sequence[int],
        dtype: torch.dtype,
    ) -> None:
        """`outputs` are the layers' sizes; what is added is computed in `dtype`."""
        self._product = product
        down = torch.cat([update.down for update in updates if update is not None])
        down = functional.pad(down, (0, 0, 0, -len(down) % _STEP))
        up = torch.zeros(sum(outputs), len(down))
        row = column = 0
        for update, size in zip(updates, outputs, strict=True):
            if update is not None:
                rank = len(update.down)
                up[row : row + size, column : column + rank] = update.up
                column += rank
            row += size
        fits = down.shape[1] % _STEP == 0 and _can_multiply_bytes(dtype)
        make = _ByteLinear if fits else Linear
        self._dtype = dtype
        self._down, self._up = make(down.to(dtype)), make(up.to(dtype))

    def __call__(self, x: Tensor) -> Tensor:
        x = x.to(self._dtype)
        return self._product(x).add_(self._up(self._down(x)))


class _ByteLinear:
    """A small product with weights of 8 bits: an answer's tokens wait 8 ms less than for oneDNN's.

    Of many rows of x it computes four at a time: a long text is read more slowly.
    """

    def __init__(self, weight: Tensor) -> None:
        scales = weight.float().abs().amax(dim=1).clamp(min=1e-30) / _LARGEST
        self._codes = (weight.float() / scales[:, None]).round().to(torch.int8)
        self._scales = scales.to(weight.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return torch._weight_int8pack_mm(x.to(self._scales.dtype), self._codes, self._scales)


@cache
def _can_multiply_bytes(dtype: torch.dtype) -> bool:
    """Return whether torch has that product, and computes each row as if it were alone."""
    return computes_rows(lambda w: _ByteLinear(w.to(dtype)), sample_weight(), atol=0.3)
