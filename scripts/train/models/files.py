"""The last step of the recipes: what was trained as GGUF files, which the package has."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_VERSION, MODEL_ARCH, GGUFWriter, LlamaFileType, get_tensor_name_map
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray
from safetensors.torch import load_file

from dragonrt.backends.llama_cpp.gguf_file import quantised

_HEADS = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
_SMALL, _FINE = Type.IQ4_NL, Type.Q8_0


def adapter_file(adapter: Path, statistics: Path, out: Path) -> None:
    """Write an adapter as the package merges it: see `model_file.merged`.

    Args:
        adapter: a directory in PEFT's layout, with the configuration of its model beside it.
        statistics: what `statistics` wrote of the model with the adapter.
        out: the file.
    """
    about, config = _json(adapter / "adapter_config.json"), _json(adapter / "config.json")
    tensors, means = load_file(adapter / "adapter_model.safetensors"), np.load(statistics)
    writer = _writer(out, "SmolLM2 135M Instruct, reading documents")
    writer.add_finetune("dragonrt")
    for long, tensor in tensors.items():
        module, _, part = long.removeprefix("base_model.model.").partition(".lora_")
        name = llama_cpp_name(f"{module}.weight", config["num_hidden_layers"])
        rows = tensor.float().numpy()
        if part == "A.weight":
            writer.add_tensor(f"{name}.inputs", np.sqrt(means[name]).astype(np.float16))
        else:  # transposed, its rows are long enough for the blocks of a quantised type
            rows = permuted(name, rows * (about["lora_alpha"] / about["r"]), config).T
        stored = f"{name}.lora_{part[0].lower()}"
        writer.add_tensor(stored, quantised(rows, _SMALL), raw_dtype=_SMALL)
    _finish(writer)


def layers_file(draft: Path, statistics: Path, out: Path) -> None:
    """Write the layers of a draft, rounded as the package's reader is.

    Args:
        draft: the checkpoint that `draft` wrote.
        statistics: what `statistics` wrote of it.
        out: the file.
    """
    config, means = _json(draft / "config.json"), np.load(statistics)
    writer = _writer(out, "A draft of SmolLM2 135M Instruct")
    writer.add_size_label("46M")
    writer.add_finetune("dragonrt-draft")
    writer.add_block_count(config["num_hidden_layers"])
    for long, tensor in load_file(draft / "model.safetensors").items():
        name = llama_cpp_name(long, config["num_hidden_layers"])
        rows, kind = tensor.float().numpy(), _FINE if ".attn_v." in name else _SMALL
        if rows.ndim == 1:
            writer.add_tensor(name, rows)
        elif name in means:  # embedding and output layer are the base's
            rounded = quantised(permuted(name, rows, config), kind, means[name])
            writer.add_tensor(name, rounded, raw_dtype=kind)
    _finish(writer)


def llama_cpp_name(name: str, layers: int) -> str:
    """Return llama.cpp's name of a tensor of transformers' Llama of that many layers."""
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, layers)
    return f"{names.get_name(name.removesuffix('.weight'))}.weight"


def permuted(name: str, weight: NDArray[Any], config: dict[str, Any]) -> NDArray[Any]:
    """Return a weight with llama.cpp's order of rows, which is another for queries and keys.

    transformers rotates the halves of a head against each other, llama.cpp neighbours.
    """
    return _reordered(name, weight, config, (2, -1))


def unpermuted(name: str, weight: NDArray[Any], config: dict[str, Any]) -> NDArray[Any]:
    """Return a weight with transformers' order of rows: the inverse of `permuted`."""
    return _reordered(name, weight, config, (-1, 2))


def _reordered(
    name: str, weight: NDArray[Any], config: dict[str, Any], halves: tuple[int, int]
) -> NDArray[Any]:
    heads = next((config[key] for part, key in _HEADS.items() if f".{part}." in name), None)
    if heads is None:
        return weight
    return weight.reshape(heads, *halves, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def _writer(out: Path, name: str) -> GGUFWriter:
    writer = GGUFWriter(out, "llama")
    writer.add_type("model")
    writer.add_name(name)
    writer.add_license("cc-by-sa-4.0")
    writer.add_file_type(LlamaFileType.MOSTLY_IQ4_NL)
    writer.add_quantization_version(GGML_QUANT_VERSION)
    return writer


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def _finish(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
