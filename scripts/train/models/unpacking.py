"""The first step of the adapter's and the draft's recipes: the package's weights unpacked."""

import shutil
from pathlib import Path

import torch
from gguf import GGUFReader, dequantize
from safetensors.torch import save_file
from transformers import AutoTokenizer

from dragonrt import bundled
from dragonrt.backends.llama_cpp.model_file import base_file
from scripts.bench.reference import transformers_model

from .adapter_model import CONFIG, GROUPS, PREFIX, SCALE
from .checkpoints import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from .files import config_of, llama_cpp_name, unpermuted


def unpacked(out: Path, adapter: Path = bundled.ADAPTER_FILE) -> None:
    """Write OUT/base, SmolLM2 with the values of its 4-bit file, and OUT/adapter, in PEFT's layout.

    Args:
        out: a directory.
        adapter: what `adapter-file` wrote; by default what ships.
    """
    base, file = out / "base", base_file()
    transformers_model(bundled.SMOLLM2, adapted=False).save_pretrained(base)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(base)
    config = config_of(base)
    stored = {each.name: each for each in GGUFReader(adapter).tensors}
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for module in (f"layers.{layer}.{name}" for names in GROUPS.values() for name in names):
            name = llama_cpp_name(f"model.{module}.weight", config)
            a, b = (stored[f"{name}.lora_{part}"] for part in "ab")
            down, up = (dequantize(each.data, each.tensor_type) for each in (a, b))
            up = unpermuted(name, up.T / SCALE, config)
            for part, rows in (("A", down), ("B", up)):
                stored_rows = torch.from_numpy(rows.copy()).bfloat16()
                tensors[f"{PREFIX}{module}.lora_{part}.weight"] = stored_rows
    (out / "adapter").mkdir(exist_ok=True)
    save_file(tensors, out / "adapter" / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    shutil.copy(CONFIG, out / "adapter" / ADAPTER_CONFIG)
