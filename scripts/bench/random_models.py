"""Models of usual shapes with random weights, made where they are measured."""

from functools import cache
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "tiny": ("Llama", (48, 2, 4, 2, 96, 512, True)),
    "0.1 B": ("Llama", (576, 30, 9, 3, 1536, 49152, True)),
    "0.5 B": ("Qwen2", (896, 24, 14, 2, 4864, 151936, True)),
    "1.5 B": ("Qwen2", (1536, 28, 12, 2, 8960, 151936, True)),
    "8 B": ("Llama", (4096, 32, 32, 8, 14336, 128256, False)),
}
"""Architectures and sizes: those of SmolLM2-135M, Qwen2.5-0.5B and -1.5B, and Llama-3.1-8B."""


def random_model(shape: str, numbers: str, device: str) -> Any:
    """Return a model of a shape, made on that device in that number type."""
    family, sizes = SHAPES[shape]
    named = _SPECIAL | dict(zip(_NAMES, sizes, strict=True))
    config = getattr(transformers, f"{family}Config")(**named, max_position_embeddings=2048)
    torch.manual_seed(0)
    with torch.device(device):
        load: Any = transformers.AutoModelForCausalLM.from_config
        model = load(config, dtype=getattr(torch, numbers))
    # Logits of standard deviation 4: a distribution has a few bits, as that of a trained model.
    scale = 4.0 / (config.initializer_range * config.hidden_size**0.5)
    model.eval().requires_grad_(False).model.norm.weight.fill_(scale)
    return model


_NAMES = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("intermediate_size", "vocab_size", "tie_word_embeddings"),
)
_SPECIAL = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)


@cache
def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Return one of the end of a text, all bytes, and two spaces; a model knows more tokens."""
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
