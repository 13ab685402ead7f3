"""Low-rank adapters of linear layers (Hu et al. 2021, LoRA), in the layout of the package `peft`.

They are merged: W becomes W + s B A, with s = alpha / r, or alpha / √r with `use_rslora`.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from dragonrt.errors import ModelError
from retrieval.files import read_bytes

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_KEY = re.compile(r"base_model\.model\.(.+)\.lora_(A|B)\.weight")
_UNREAD = ("use_dora", "modules_to_save", "layer_replication", "trainable_token_indices")


def merge(model: Any, directory: Path) -> str:
    """Add the LoRA of a directory to a model's weights; return the SHA-256 of its files.

    Raises ModelError, with the model unchanged, if it cannot be read or is another model's.
    """
    changes, fingerprint = _read(directory)
    modules = dict(model.named_modules())
    for name, change in changes.items():
        if name == "lm_head":
            raise ModelError("the adapter changes lm_head: only layers within can be adapted")
        module, shape = modules.get(name), None
        if isinstance(module, Conv1D):
            changes[name] = change = change.T
        if isinstance(module, (nn.Linear, Conv1D)):
            shape = tuple(module.weight.shape)
        if shape != tuple(change.shape):
            raise ModelError(
                f"the adapter is another model's: {name} is {shape}, not {tuple(change.shape)}"
            )
    for name, change in changes.items():
        weight = modules[name].weight
        weight.data = (weight.float() + change.to(weight.device)).to(weight.dtype)
    return fingerprint


def _read(directory: Path) -> tuple[dict[str, Tensor], str]:
    """Return s B A of each layer, and the SHA-256 of the files."""
    try:
        text = read_bytes(directory / _CONFIG)
        config = json.loads(text)
        content = read_bytes(directory / _WEIGHTS, math.inf)
        _check_options(config)
        found: dict[str, dict[str, Tensor]] = {}
        for key, tensor in load_file(directory / _WEIGHTS).items():
            match = _KEY.fullmatch(key)
            if match is None or tensor.ndim != 2:
                raise ValueError(f"{key} is no part of a plain LoRA")
            found.setdefault(match[1], {})[match[2]] = tensor.float()
        if not found:
            raise ValueError("it adapts no layer")
        changes = {name: _change(config, name, pair) for name, pair in found.items()}
    except (OSError, ValueError, KeyError, TypeError, re.error, SafetensorError) as error:
        raise ModelError(f"{directory} cannot be read as an adapter: {error}") from error
    return changes, hashlib.sha256(text + content).hexdigest()


def _check_options(config: Mapping[str, Any]) -> None:
    """Raise ValueError for options that are not read."""
    if config["peft_type"] != "LORA":
        raise ValueError(f"it is of the type {config['peft_type']}, not LORA")
    if config.get("bias", "none") != "none":
        raise ValueError(f"it trains biases ({config['bias']}), which is not read")
    if given := [name for name in _UNREAD if config.get(name)]:
        raise ValueError(f"it uses {given[0]}, which is not read")


def _change(config: Mapping[str, Any], name: str, pair: Mapping[str, Tensor]) -> Tensor:
    """Return s B A of a layer, whose rank and scale the configuration gives."""
    down, up = pair["A"], pair["B"]
    rank = _of_pattern(config, "rank_pattern", "r", name)
    alpha = _of_pattern(config, "alpha_pattern", "lora_alpha", name)
    if (rank, rank) != (len(down), up.shape[1]) or not math.isfinite(alpha):
        raise ValueError(f"{name} has rank {rank:g}, and stores {len(down)} and {up.shape[1]}")
    return alpha / (rank**0.5 if config.get("use_rslora") else rank) * up @ down


def _of_pattern(config: Mapping[str, Any], pattern: str, otherwise: str, name: str) -> float:
    """Return the number of the first pattern that a layer's name ends with, else of all layers."""
    numbers = config.get(pattern) or {}
    key = next((key for key in numbers if re.fullmatch(rf"(.*\.)?({key})", name)), None)
    return float(config[otherwise] if key is None else numbers[key])
