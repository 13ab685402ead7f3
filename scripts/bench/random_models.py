"""Models of the sizes that people run, with random weights: noise in words, real in its cost."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from dragonrt.backends.model import LanguageModel
from dragonrt.backends.torch_.checkpoint import Checkpoint, backend_of, load_checkpoint

_COMMON: Mapping[str, Any] = {
    "vocab_size": 151_936,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
SHARPNESS, APART = 5.0, 0.1
"""The deviation of the logits, so that a few tokens have most of the probability, as in texts; and
that of what related models differ by, as a part of it."""
HIDDEN, LAYERS = 128, 2
"""The sizes of related models."""

SIZES: Mapping[str, PretrainedConfig] = {
    "random-0.1b": LlamaConfig(
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=2,
        **_COMMON,
    ),
    "random-0.5b": Qwen2Config(
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        **_COMMON,
    ),
    "random-0.6b": Qwen3Config(
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        **_COMMON,
    ),
}
"""The shapes of a small Llama, of Qwen2-0.5B and of Qwen3-0.6B, with their vocabulary."""


ARCHITECTURES = {"llama": LlamaConfig, "qwen3": Qwen3Config, "gemma2": Gemma2Config}
"""What is read and rotated alike; with norms of heads; with windows, caps and scales as well."""


def random_weights(name: str, dtype: torch.dtype, seed: int = 1) -> Any:
    """A transformers model of one of the SIZES."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]  # it has no types
        SIZES[name], dtype=dtype
    )
    size = SIZES[name].hidden_size
    model.lm_head.weight.data.normal_(std=SHARPNESS / size**0.5)
    # with one sign a token's own row would be its likeliest successor, at any deviation
    model.model.norm.weight.data.copy_(2.0 * torch.randint(2, (size,)) - 1.0)
    return model.eval().requires_grad_(False)


def random_model(name: str, dtype: torch.dtype, seed: int = 1) -> LanguageModel:
    """The same, with a tokenizer that is not its own: for token ids alone."""
    return LanguageModel(
        name, backend_of(Checkpoint(random_weights(name, dtype, seed), _tokenizer(), name))
    )


def related_models(vocabulary: int, count: int, seed: int) -> list[LanguageModel]:
    """Small models that agree as far as a draft model agrees with its target."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )
    first = LlamaForCausalLM(config)
    first.lm_head.weight.data.normal_(std=SHARPNESS / HIDDEN**0.5)
    tokenizer = _tokenizer()
    found = []
    for number in range(count):
        model = copy.deepcopy(first)
        noise = torch.randn_like(model.lm_head.weight)
        model.lm_head.weight.data += APART * number * SHARPNESS / HIDDEN**0.5 * noise
        found.append(
            LanguageModel(f"random {number}", backend_of(Checkpoint(model, tokenizer, "random")))
        )
    return found


def small_pair(architecture: str, dtype: torch.dtype, seed: int) -> list[LanguageModel]:
    """Two small models of one of the ARCHITECTURES that agree now and then."""
    torch.manual_seed(seed)
    config = ARCHITECTURES[architecture](
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=1024,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    first = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]  # it has no types
        config
    )
    for parameter in first.parameters():  # as they are made, models repeat the last token
        parameter.data += 0.15 * torch.randn_like(parameter)
    first.get_output_embeddings().weight.data.normal_(std=SHARPNESS / config.hidden_size**0.5)
    found = []
    for number in range(2):
        model = copy.deepcopy(first)
        for parameter in model.parameters():
            parameter.data += 0.02 * number * torch.randn_like(parameter)
        weights = model.to(dtype).eval().requires_grad_(False)
        found.append(
            LanguageModel(f"small {number}", backend_of(Checkpoint(weights, _tokenizer(), "small")))
        )
    return found


def _tokenizer() -> Any:
    return load_checkpoint("dragon-draft", "cpu", "float32").tokenizer
