"""Tiny random models of every architecture family, and their backends."""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import transformers

from dragonrt import bundled
from dragonrt.backends.torch_.backend import TorchBackend
from dragonrt.backends.torch_.checkpoint import Checkpoint, backend_of
from dragonrt.backends.torch_.int4 import can_multiply_int4
from dragonrt.backends.torch_.int8 import can_quantize
from dragonrt.backends.torch_.weights import Format, floats, int4, int8
from dragonrt.testing.backend_contract import Subject

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 160,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
HEADS: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 12}
OPT: dict[str, Any] = {"word_embed_proj_dim": 48, "ffn_dim": 96, "pad_token_id": 1}
TIED: dict[str, Any] = {"tie_word_embeddings": True}
WINDOW: dict[str, Any] = {"sliding_window": 24}
GEMMA = WINDOW | {"query_pre_attn_scalar": 16}
HALF = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
LONG = {"intermediate_size": 1100}  # longer than one product sums in one pass
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]

Family = tuple[str, dict[str, Any]]
WRITTEN_OUT: dict[str, Family] = {
    "llama": ("Llama", TIED | {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8}),
    "llama in whole groups": (  # of 32 inputs, so that 4 bits are used throughout
        "Llama",
        TIED
        | {"hidden_size": 64, "num_key_value_heads": 2, "head_dim": 16}
        | {"intermediate_size": 160, "attention_bias": True},
    ),
    "qwen2": (
        "Qwen2",
        LONG
        | {"hidden_size": 56, "num_hidden_layers": 2, "num_attention_heads": 7}
        | {"num_key_value_heads": 1, "head_dim": 8, "tie_word_embeddings": False},
    ),
    "opt": ("OPT", OPT),
    "gpt2": (
        "GPT2",
        {"n_embd": 48, "n_layer": 2, "n_head": 3, "n_positions": 160, "vocab_size": 97},
    ),
    "mistral": ("Mistral", HEADS | {"sliding_window": None}),
    "mistral with a sliding window": ("Mistral", HEADS | WINDOW),
    "qwen3": ("Qwen3", HEADS),
    "phi3": ("Phi3", HEADS | {"rope_parameters": HALF}),
    "smollm3": (
        "SmolLM3",
        HEADS | WINDOW | {"no_rope_layers": [1, 0, 1], "use_sliding_window": True},
    ),
    "olmo2": ("Olmo2", HEADS),
    "gemma2": (
        "Gemma2",
        HEADS | GEMMA | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    ),
    "gemma3": (
        "Gemma3Text",
        GEMMA
        | {"layer_types": KINDS, "num_attention_heads": 8, "num_key_value_heads": 1}
        | {"head_dim": 12},
    ),
}
THROUGH_TRANSFORMERS: dict[str, Family] = {
    "gpt_neox": ("GPTNeoX", {}),
    "opt with norms behind": ("OPT", OPT | {"do_layer_norm_before": False}),
}
FORMATS: dict[str, Callable[[], Format]] = {
    "float32": lambda: floats(torch.float32),
    "bfloat16": lambda: floats(torch.bfloat16),
    "int8": int8,
    "int4": int4,
}


class Tiny:
    """A transformers model with random weights, and backends made of it."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        self.written_out = name in WRITTEN_OUT
        self._subjects: dict[str, Subject] = {}
        family, options = (WRITTEN_OUT | THROUGH_TRANSFORMERS)[name]
        sizes = options if family == "GPT2" else SIZES | options
        config = getattr(transformers, f"{family}Config")(**sizes)
        config._attn_implementation = "eager"  # the one that knows soft caps
        head = "LMHeadModel" if family == "GPT2" else "ForCausalLM"
        self.reference = getattr(transformers, family.removesuffix("Text") + head)(config).eval()
        for parameter in self.reference.parameters():
            # biases and norms start at 0 and 1, which would hide a mistake
            parameter.data += 0.1 * torch.randn_like(parameter)

    def subject(self, dtype: str = "float32") -> Subject:
        """The same weights in a format; skips where there is none for it."""
        if dtype not in self._subjects:
            self._subjects[dtype] = Subject(self._backend(dtype))
        return self._subjects[dtype]

    def _backend(self, dtype: str) -> TorchBackend:
        form = FORMATS[dtype]()
        possible = {"int8": can_quantize(), "int4": can_multiply_int4()}
        if dtype in possible and not (possible[dtype] and self.written_out):
            pytest.skip(f"{dtype} is not possible here, or with this architecture")
        model = copy.deepcopy(self.reference).to(form.dtype)
        return backend_of(Checkpoint(model, _tokenizer(), "tiny", form=form))

    def expected(self, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities [len(tokens), vocabulary] and hidden states by transformers alone."""
        with torch.inference_mode():
            output = self.reference(input_ids=torch.tensor([tokens]), output_hidden_states=True)
        return output.logits[0].log_softmax(-1), output.hidden_states[-1][0]


@cache
def _tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(bundled.model_path("dragon-draft"))


_made = cache(Tiny)


@pytest.fixture(params=[*WRITTEN_OUT, *THROUGH_TRANSFORMERS])
def tiny(request: pytest.FixtureRequest) -> Tiny:
    return _made(request.param)
