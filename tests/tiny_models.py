"""Random transformers models of a few thousand weights, with a tokenizer of bytes."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from safetensors.torch import load_file, save_file

from dragonrt.backends.llama_cpp.gguf_file import quantised
from scripts.bench.random_models import tokenizer as tokenizer
from scripts.train.models.files import llama_cpp_name, permuted

SIZES: dict[str, Any] = {
    "vocab_size": 261,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 160,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"num_key_value_heads": 2, "head_dim": 12, "tie_word_embeddings": True}),
    "opt": ("OPT", {"word_embed_proj_dim": 48, "ffn_dim": 96, "do_layer_norm_before": False}),
    "gpt2": ("GPT2", {"n_embd": 48, "n_layer": 2, "n_head": 3, "n_positions": 160}),
    "gemma3": (
        "Gemma3Text",
        {"sliding_window": 24, "query_pre_attn_scalar": 16, "layer_types": KINDS}
        | {"num_key_value_heads": 1, "head_dim": 12},
    ),
}


def tiny(family: str, **sizes: Any) -> Any:
    """Return a model of one of the FAMILIES, with other sizes than the usual ones."""
    torch.manual_seed(0)
    name, own = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(**SIZES | own | sizes)
    head = "LMHeadModel" if family == "gpt2" else "ForCausalLM"
    model = getattr(transformers, name.removesuffix("Text") + head)(config).eval()
    for parameter in model.parameters():
        # biases and norms start at 0 and 1, which would hide a mistake
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def saved(model: Any, directory: Path) -> Path:
    """Write a model with its tokenizer into a directory, which is returned."""
    model.save_pretrained(directory)
    tokenizer().save_pretrained(directory)
    return directory


def written_file(directory: Path, out: Path) -> None:
    """Write a saved Llama model and its tokenizer as a GGUF file in Q8_0."""
    config, tokenizer = (
        json.loads((directory / name).read_text("utf-8"))
        for name in ("config.json", "tokenizer.json")
    )
    writer, fine = GGUFWriter(out, "llama"), GGMLQuantizationType.Q8_0
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    vocabulary = tokenizer["model"]["vocab"]
    kinds = [TokenType.NORMAL] * len(vocabulary)
    for each in tokenizer["added_tokens"]:
        kinds[each["id"]] = TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(sorted(vocabulary, key=vocabulary.__getitem__))
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(each) for each in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    for long, tensor in load_file(directory / "model.safetensors").items():
        name = llama_cpp_name(long, config["num_hidden_layers"])
        weight = permuted(name, tensor.float().numpy(), config)
        if weight.ndim == 1:
            writer.add_tensor(name, weight)
        else:
            writer.add_tensor(name, quantised(weight, fine), raw_dtype=fine)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
CONV1D = ("c_attn", "mlp.c_proj")


def written_adapter(model: Any, directory: Path, **options: Any) -> dict[str, torch.Tensor]:
    """Write a random adapter; returns W's change by layer, computed here."""
    settings: dict[str, Any] = {
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 8,
        "bias": "none",
        "target_modules": list(TARGETS),
    } | options
    generator = torch.Generator().manual_seed(1)
    tensors, changes = {}, {}
    for name, module in model.named_modules():
        if not name.endswith((*TARGETS, *CONV1D)):
            continue
        rank, alpha = settings["r"], settings["lora_alpha"]
        for key, number in settings.get("rank_pattern", {}).items():
            rank = number if name.endswith(key) else rank
        for key, number in settings.get("alpha_pattern", {}).items():
            alpha = number if name.endswith(key) else alpha
        outputs, inputs = module.weight.shape[:: -1 if name.endswith(CONV1D) else 1]
        down = torch.randn(rank, inputs, generator=generator) / inputs**0.5
        up = 0.2 * torch.randn(outputs, rank, generator=generator)
        tensors[f"base_model.model.{name}.lora_A.weight"] = down
        tensors[f"base_model.model.{name}.lora_B.weight"] = up
        scale = alpha / (rank**0.5 if settings.get("use_rslora") else rank)
        changes[name] = scale * up @ down
    directory.mkdir(exist_ok=True)
    save_file(tensors, directory / "adapter_model.safetensors")
    (directory / "adapter_config.json").write_text(json.dumps(settings))
    return changes
