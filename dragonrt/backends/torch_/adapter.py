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
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from dragonrt.backends.torch_.linear import Linear, Pointwise
from dragonrt.errors import ModelError
from retrieval.files import read_bytes

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_KEY = re.compile(r"base_model\.model\.(.+)\.lora_(A|B)\.weight")
_UNREAD = ("use_dora", "modules_to_save", "layer_replication", "trainable_token_indices")


@dataclass(frozen=True, slots=True)
class Update:
    """One layer's s B A: `down` is A [r, inputs], `up` is s B [outputs, r], both float32."""

    down: Tensor
    up: Tensor

    @classmethod
    def joined(cls, updates: Sequence["Update | None"], outputs: Sequence[int]) -> "Update":
        """Return the update of several layers of these sizes as one: B is block-diagonal."""
        found = [update for update in updates if update is not None]
        up = torch.zeros(sum(outputs), sum(len(update.down) for update in found))
        row = column = 0
        for update, size in zip(updates, outputs, strict=True):
            if update is not None:
                rank = len(update.down)
                up[row : row + size, column : column + rank] = update.up
                column += rank
            row += size
        return cls(torch.cat([update.down for update in found]), up)

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
    """A product and, beside it, that of an update, whose numbers are of type `dtype`."""

    def __init__(self, product: Pointwise, update: Update, dtype: torch.dtype) -> None:
        self._product, self._dtype = product, dtype
        self._down, self._up = Linear(update.down.to(dtype)), Linear(update.up.to(dtype))

    def __call__(self, x: Tensor) -> Tensor:
        x = x.to(self._dtype)
        return self._product(x).add_(self._up(self._down(x)))
