"""A user's LoRA as llama.cpp reads it: made of the directory that PEFT writes."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.llama_cpp.cache import cached
from dragonrt.backends.llama_cpp.model import LlamaModel
from dragonrt.backends.llama_cpp.model_file import fingerprint
from dragonrt.errors import ModelError

_WEIGHTS, _SETTINGS = "adapter_model.safetensors", "adapter_config.json"
_LAYERS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Linear layers as transformers names them, and as llama.cpp does."""
_HEADS = {"attn_q": "head_count", "attn_k": "head_count_kv"}
"""Layers whose rows llama.cpp reorders in files of some architectures, and keys of their heads."""
_REORDERED = ("llama", "smollm3", "granite")
_UNREAD = (
    *("use_dora", "modules_to_save", "layer_replication", "trainable_token_indices"),
    *("rank_pattern", "alpha_pattern"),
)


def adapter_file(model: LlamaModel, adapter: Path) -> Path:
    """Return an adapter's GGUF file: itself, or one made of PEFT's directory and kept.

    Raises ModelError if it is neither, or updates other layers than linear ones.
    """
    adapter = adapter.expanduser()
    if adapter.is_file():
        return adapter
    weights, settings = adapter / _WEIGHTS, adapter / _SETTINGS
    try:
        known = f"{fingerprint(weights)} {settings.read_text(encoding='utf-8')} {model.path}"
        return cached("adapter", known, lambda path: _write(path, model, adapter))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{adapter} is no LoRA as PEFT writes it: {error}") from None


def _write(path: Path, model: LlamaModel, adapter: Path) -> None:
    from gguf import GGUFWriter

    settings = json.loads((adapter / _SETTINGS).read_text(encoding="utf-8"))
    if given := [name for name in _UNREAD if settings.get(name)]:
        raise ValueError(f"it uses {given[0]}, which is not read")
    if settings.get("bias", "none") != "none":
        raise ValueError("it trains biases, which is not read")
    kind = model.metadata("general.architecture")
    writer = GGUFWriter(path, kind)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    scale = settings["r"] ** 0.5 if settings.get("use_rslora") else 1.0
    writer.add_float32("adapter.lora.alpha", float(settings["lora_alpha"]) * scale)
    for name, numbers in _tensors(model, kind, adapter / _WEIGHTS):
        writer.add_tensor(name, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(
    model: LlamaModel, kind: str, weights: Path
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield names and numbers of an adapter: A [rank, columns], B [rows, rank] of each layer."""
    for name, numbers in _read(weights).items():
        layer, _, part = name.removesuffix(".weight").rpartition(".lora_")
        *_, number, module, linear = layer.split(".")
        if part not in ("A", "B") or f"{module}.{linear}" not in _LAYERS:
            raise ModelError(f"{weights} updates {name}, which is no linear layer of a decoder")
        own = _LAYERS[f"{module}.{linear}"]
        if part == "B" and kind in _REORDERED and own in _HEADS:
            heads = int(model.metadata(f"{kind}.attention.{_HEADS[own]}"))
            numbers = numbers.reshape(heads, 2, -1, numbers.shape[1]).swapaxes(1, 2)
            numbers = np.ascontiguousarray(numbers).reshape(-1, numbers.shape[-1])
        yield f"blk.{number}.{own}.weight.lora_{part.lower()}", numbers


def _read(weights: Path) -> Mapping[str, NDArray[np.float32]]:
    """Return the tensors of a safetensors file in float32; numpy has no bfloat16."""
    found: dict[str, NDArray[np.float32]] = {}
    data = weights.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    about: dict[str, Any] = json.loads(data[8:start])
    about.pop("__metadata__", None)
    for name, each in about.items():
        first, last = (start + offset for offset in each["data_offsets"])
        if each["dtype"] == "BF16":
            halves = np.frombuffer(data[first:last], np.uint16).astype(np.uint32)
            numbers = (halves << 16).view(np.float32)
        else:
            dtype = {"F32": np.float32, "F16": np.float16}[each["dtype"]]
            numbers = np.frombuffer(data[first:last], dtype).astype(np.float32)
        found[name] = numbers.reshape(each["shape"])
    return found
