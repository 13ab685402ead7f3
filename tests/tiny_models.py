"""Random transformers models of a few thousand weights, with a tokenizer of bytes."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

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


@cache
def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Return one of the end of a text, all bytes, and two spaces; a model knows a few more."""
    end = "<|endoftext|>"
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    space = "\u0120"  # as byte-level vocabularies write it
    tokens = {token: number for number, token in enumerate([end, *alphabet, 2 * space])}
    made = Tokenizer(models.BPE(tokens, [(space, space)]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # no types
        tokenizer_object=made, bos_token=end, eos_token=end, pad_token=end
    )


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
