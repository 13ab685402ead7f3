"""The models as transformers runs them, a file's weights dequantised."""

from pathlib import Path
from typing import Any

import torch
from gguf import MODEL_ARCH, GGUFReader, ReaderTensor, dequantize, get_tensor_name_map
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from dragonrt import bundled
from dragonrt.backends.llama_cpp.model_file import base_file
from scripts.bench.llama_cpp import model_path


def transformers_model(name: str, *, adapted: bool = True) -> Any:
    """Load a Llama's GGUF file, a directory or a hub id, in bfloat16; smollm2 with its adapter."""
    path = model_path(name) if adapted or name != bundled.SMOLLM2 else base_file()
    loaded: Any = (
        _llama(path)
        if path.is_file()
        else AutoModelForCausalLM.from_pretrained(path if path.is_dir() else name)
    )
    return loaded.bfloat16().eval()


def _llama(file: Path) -> LlamaForCausalLM:
    reader = GGUFReader(file)
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def numbers(tensor: ReaderTensor) -> torch.Tensor:
        return torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())

    def said(key: str) -> Any:
        return reader.fields[f"llama.{key}"].contents()

    config = LlamaConfig(
        vocab_size=len(tensors["token_embd.weight"].data),
        hidden_size=said("embedding_length"),
        intermediate_size=said("feed_forward_length"),
        num_hidden_layers=said("block_count"),
        num_attention_heads=said("attention.head_count"),
        num_key_value_heads=said("attention.head_count_kv"),
        max_position_embeddings=said("context_length"),
        rms_norm_eps=said("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": said("rope.freq_base")},
        tie_word_embeddings="output.weight" not in tensors,
    )
    model = LlamaForCausalLM(config)
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, parameter in model.named_parameters():
        tensor = tensors[f"{names.get_name(name.removesuffix('.weight'))}.weight"]
        weight = numbers(tensor)
        if name.endswith(("q_proj.weight", "k_proj.weight")):  # llama.cpp interleaves the halves
            heads = len(weight) // model.model.layers[0].self_attn.head_dim
            weight = weight.view(heads, -1, 2, weight.shape[1]).transpose(1, 2).flatten(0, 2)
        parameter.data.copy_(weight)
    return model
