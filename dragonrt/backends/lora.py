"""Read low-rank adapters of linear layers (LoRA, Hu et al. 2021) in the format of `peft`."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from dragonrt.errors import ModelError
from retrieval.files import read_bytes

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_KEY = re.compile(r"base_model\.model\.(.+)\.lora_(A|B)\.weight")
_UNREAD = ("use_dora", "modules_to_save", "layer_replication", "trainable_token_indices")
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


class Factors(NamedTuple):
    """The LoRA of one layer: its weight W [rows, columns] becomes W + scale · up · down.

    `down` is [rank, columns], `up` [rows, rank].
    """

    down: NDArray[np.float32]
    up: NDArray[np.float32]
    scale: float


def read_lora(directory: Path) -> tuple[dict[str, Factors], str]:
    """Return a LoRA's Factors by layer, and its files' SHA-256. ModelError if it cannot be read."""
    try:
        text = read_bytes(directory / _CONFIG)
        content = read_bytes(directory / _WEIGHTS, math.inf)
        config = json.loads(text)
        _check_options(config)
        found: dict[str, dict[str, NDArray[np.float32]]] = {}
        for key, tensor in deserialize(content):  # type: ignore[no-untyped-call]  # no types
            match = _KEY.fullmatch(key)
            if match is None or len(tensor["shape"]) != 2:
                raise ValueError(f"{key} is no part of a plain LoRA")
            found.setdefault(match[1], {})[match[2]] = _numbers(tensor)
        if not found:
            raise ValueError("it adapts no layer")
        factors = {name: _factors(config, name, pair) for name, pair in found.items()}
    except (OSError, ValueError, KeyError, TypeError, re.error, SafetensorError) as error:
        raise ModelError(f"{directory} cannot be read as an adapter: {error}") from error
    return factors, hashlib.sha256(text + content).hexdigest()


def _check_options(config: Mapping[str, Any]) -> None:
    """Raise ValueError for options that are not read."""
    if config["peft_type"] != "LORA":
        raise ValueError(f"it is of the type {config['peft_type']}, not LORA")
    if config.get("bias", "none") != "none":
        raise ValueError(f"it trains biases ({config['bias']}), which is not read")
    if given := [name for name in _UNREAD if config.get(name)]:
        raise ValueError(f"it uses {given[0]}, which is not read")


def _numbers(tensor: Mapping[str, Any]) -> NDArray[np.float32]:
    """Return a tensor in float32; numpy has no bfloat16."""
    if tensor["dtype"] == "BF16":
        halves = np.frombuffer(tensor["data"], "<u2").astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(tensor["shape"])
    numbers = np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]])
    return numbers.astype(np.float32).reshape(tensor["shape"])


def _factors(
    config: Mapping[str, Any], name: str, pair: Mapping[str, NDArray[np.float32]]
) -> Factors:
    """Return the factors of a layer, whose rank and scale the configuration gives."""
    down, up = pair["A"], pair["B"]
    rank = _of_pattern(config, "rank_pattern", "r", name)
    alpha = _of_pattern(config, "alpha_pattern", "lora_alpha", name)
    if (rank, rank) != (len(down), up.shape[1]) or not math.isfinite(alpha):
        raise ValueError(f"{name} has rank {rank:g}, and stores {len(down)} and {up.shape[1]}")
    return Factors(down, up, alpha / (rank**0.5 if config.get("use_rslora") else rank))


def _of_pattern(config: Mapping[str, Any], pattern: str, otherwise: str, name: str) -> float:
    """Return the number of the first pattern that a layer's name ends with, else of all layers."""
    numbers = config.get(pattern) or {}
    key = next((key for key in numbers if re.fullmatch(rf"(.*\.)?({key})", name)), None)
    return float(config[otherwise] if key is None else numbers[key])
