"""Models of the sizes that people run, with random weights: noise in words, real in its cost."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    LlamaConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from dragonrt.backends.model import LanguageModel
from dragonrt.backends.torch_.checkpoint import Checkpoint, backend_of, load_checkpoint
from dragonrt.backends.torch_.weights import floats, int4
from dragonrt.side import Precision

SHARPNESS = 5.0
"""The deviation of the logits, so that a few tokens have most of the probability, as in texts."""


def _config(kind: Any, *sizes: int, **more: Any) -> PretrainedConfig:
    """Return a configuration with the vocabulary of Qwen2 and Qwen3."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    given = dict(zip((*names, "num_key_value_heads"), sizes, strict=True)) | more
    defaults = {"vocab_size": 151_936, "max_position_embeddings": 4096, "tie_word_embeddings": True}
    made: PretrainedConfig = kind(**defaults | given)
    return made


SIZES: Mapping[str, PretrainedConfig] = {
    "random-0.1b": _config(LlamaConfig, 512, 1536, 8, 8, 2),
    "random-0.5b": _config(Qwen2Config, 896, 4864, 24, 14, 2),
    "random-0.6b": _config(Qwen3Config, 1024, 3072, 28, 16, 8, head_dim=128),
}
"""The shapes of a small Llama, of Qwen2-0.5B and of Qwen3-0.6B."""

ARCHITECTURES = {"llama": LlamaConfig, "qwen3": Qwen3Config, "gemma2": Gemma2Config}
"""What is read and rotated alike; with norms of heads; with windows, caps and scales as well."""


def random_model(name: str, dtype: Precision, seed: int = 1) -> LanguageModel:
    """Return a model of one of the SIZES, for token ids alone; auto is float32."""
    torch.manual_seed(seed)
    config = SIZES[name]
    model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]  # no types
    model.lm_head.weight.data.normal_(std=SHARPNESS / config.hidden_size**0.5)
    # with one sign a token's own row would be its likeliest successor, at any deviation
    model.model.norm.weight.data.copy_(2.0 * torch.randint(2, (config.hidden_size,)) - 1.0)
    return _loaded(name, model, dtype)


def small_pair(architecture: str, dtype: Precision, seed: int) -> list[LanguageModel]:
    """Return two small models of one of the ARCHITECTURES that agree now and then."""
    torch.manual_seed(seed)
    config = _config(
        *(ARCHITECTURES[architecture], 64, 128, 3, 4, 2),
        vocab_size=512,
        head_dim=16,
        max_position_embeddings=1024,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    first = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]  # no types
    for parameter in first.parameters():  # as they are made, models repeat the last token
        parameter.data += 0.15 * torch.randn_like(parameter)
    first.get_output_embeddings().weight.data.normal_(std=SHARPNESS / config.hidden_size**0.5)
    found = []
    for number in range(2):
        model = copy.deepcopy(first)
        for parameter in model.parameters():
            parameter.data += 0.02 * number * torch.randn_like(parameter)
        found.append(_loaded(f"small {number}", model, dtype))
    return found


def _loaded(name: str, model: Any, dtype: Precision) -> LanguageModel:
    """Return a model in numbers of that type, with a tokenizer that is not its own."""
    numbers = getattr(torch, "float32" if dtype in ("auto", "int4") else dtype)
    form = int4() if dtype == "int4" else floats(numbers)
    weights = model.to(form.floats).eval().requires_grad_(False)
    tokenizer = load_checkpoint("dragon-draft", "cpu", "float32").tokenizer
    return LanguageModel(name, backend_of(Checkpoint(weights, tokenizer, name, form)))
