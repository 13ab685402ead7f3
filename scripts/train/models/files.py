"""The last step of the recipes: GGUF files of what was trained, as the package has them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, LlamaFileType
from numpy.typing import NDArray
from safetensors.torch import load_file

from dragonrt.backends.llama_cpp.gguf_file import quantised

LAYERS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
"""Parts of a transformers' Llama and their names in a GGUF file."""
_ADAPTER = Type.Q5_0
_HEADS = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}


def permuted(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """Return the rows of a query's or key's weight in llama.cpp's order."""
    shape = (heads, 2, len(rows) // heads // 2, *rows.shape[1:])
    return rows.reshape(shape).swapaxes(1, 2).reshape(rows.shape)


def adapter_file(adapter: Path, statistics: Path, config: Path, out: Path) -> None:
    """Write an adapter as the package merges it: see `model_file.merged`.

    Args:
        adapter: a directory in PEFT's layout.
        statistics: of the linear layers, by the names that they have in a GGUF file, the mean
            squares of their inputs: an npz file.
        config: the base's config.json.
        out: the file.
    """
    about = json.loads((adapter / "adapter_config.json").read_text("utf-8"))
    shape = json.loads(config.read_text("utf-8"))
    tensors = {
        k: v.float().numpy() for k, v in load_file(adapter / "adapter_model.safetensors").items()
    }
    writer = GGUFWriter(out, "llama")
    writer.add_name("SmolLM2 135M Instruct, reading documents")
    writer.add_finetune("dragonrt")
    writer.add_license("cc-by-sa-4.0")
    writer.add_file_type(LlamaFileType.MOSTLY_IQ4_NL)
    for name, inputs in np.load(statistics).items():
        _, layer, part, _ = name.split(".")
        (long,) = (key for key, value in LAYERS.items() if value == part)
        a, b = (
            tensors[f"base_model.model.model.layers.{layer}.{long}.lora_{each}.weight"]
            for each in "AB"
        )
        if part in _HEADS:
            b = permuted(b, shape[_HEADS[part]])
        b = b.T * (about["lora_alpha"] / about["r"])
        for end, rows in (("lora_a", a), ("lora_b", b)):
            writer.add_tensor(f"{name}.{end}", quantised(rows, _ADAPTER), raw_dtype=_ADAPTER)
        writer.add_tensor(f"{name}.inputs", np.sqrt(inputs).astype(np.float16))
    _close(writer)


def _close(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
