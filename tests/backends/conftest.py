"""Tiny random models of every architecture family, each wrapped as a decoder."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from dragonrt.backends.decoder import Decoder
from dragonrt.backends.torch_.architectures import transformer
from dragonrt.backends.torch_.weights import Format, LayerFactory, floats
from dragonrt.backends.transformers_.backend import HubDecoder

VOCABULARY = 97
CONTEXT = 160


def family(config: type[Any], model: type[Any], **options: Any) -> Any:
    """A model with this configuration; the sizes are Llama's family's unless others are given."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 1,
    }
    made = config(**(sizes | options))
    made._attn_implementation = "eager"  # the one that knows soft caps
    return model(made)


def llama() -> Any:
    return family(
        LlamaConfig,
        LlamaForCausalLM,
        num_attention_heads=6,
        head_dim=8,
        tie_word_embeddings=True,
    )


def whole_groups() -> Any:
    """Every weight's inputs are whole groups of 32, so that 4 bits are used throughout."""
    return family(
        LlamaConfig,
        LlamaForCausalLM,
        hidden_size=64,
        head_dim=16,
        intermediate_size=160,
        attention_bias=True,
        tie_word_embeddings=True,
    )


def qwen2() -> Any:
    return family(
        Qwen2Config,
        Qwen2ForCausalLM,
        hidden_size=56,
        intermediate_size=1100,  # longer than one product sums in one pass
        num_hidden_layers=2,
        num_attention_heads=7,
        num_key_value_heads=1,
        head_dim=8,
        tie_word_embeddings=False,
    )


def opt(**options: Any) -> Any:
    sizes = {"word_embed_proj_dim": 48, "ffn_dim": 96, "pad_token_id": 1}
    return family(OPTConfig, OPTForCausalLM, **(sizes | options))


def gpt2() -> Any:
    sizes: dict[str, Any] = {"n_embd": 48, "n_layer": 2, "n_head": 3, "n_positions": CONTEXT}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **sizes))


def gpt_neox() -> Any:
    config = GPTNeoXConfig(
        vocab_size=VOCABULARY,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
    )
    return GPTNeoXForCausalLM(config)


def smollm3() -> Any:
    return family(
        SmolLM3Config,
        SmolLM3ForCausalLM,
        no_rope_layers=[1, 0, 1],
        use_sliding_window=True,
        sliding_window=24,
    )


def gemma2() -> Any:
    return family(
        Gemma2Config,
        Gemma2ForCausalLM,
        sliding_window=24,
        query_pre_attn_scalar=16,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
    )


def gemma3() -> Any:
    return family(
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        sliding_window=24,
        query_pre_attn_scalar=16,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        num_attention_heads=8,
        num_key_value_heads=1,
    )


WRITTEN_OUT: dict[str, Callable[[], Any]] = {
    "llama": llama,
    "llama in whole groups": whole_groups,
    "qwen2": qwen2,
    "opt": opt,
    "gpt2": gpt2,
    "mistral": lambda: family(MistralConfig, MistralForCausalLM, sliding_window=None),
    "mistral with a sliding window": lambda: family(
        MistralConfig, MistralForCausalLM, sliding_window=24
    ),
    "qwen3": lambda: family(Qwen3Config, Qwen3ForCausalLM),
    "phi3": lambda: family(
        Phi3Config,
        Phi3ForCausalLM,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        },
    ),
    "smollm3": smollm3,
    "olmo2": lambda: family(Olmo2Config, Olmo2ForCausalLM),
    "gemma2": gemma2,
    "gemma3": gemma3,
}
THROUGH_HUB: dict[str, Callable[[], Any]] = {
    "gpt_neox": gpt_neox,
    "opt with norms behind": lambda: opt(do_layer_norm_before=False),
}


class Tiny:
    """A transformers model with random weights and the decoder read from it."""

    to_be_written_out = tuple(WRITTEN_OUT)

    def __init__(self, make: Callable[[], Any]) -> None:
        torch.manual_seed(0)
        self.reference = make().eval()
        for parameter in self.reference.parameters():
            # biases and norms start at 0 and 1, which would hide a mistake
            parameter.data += 0.1 * torch.randn_like(parameter)
        written = transformer(self.reference)
        self.decoder: Decoder[Any] = written or HubDecoder(copy.deepcopy(self.reference))
        self.written_out = written is not None

    def in_format(self, form: Format) -> Decoder[Any]:
        """The same weights, rounded."""
        rounded = copy.deepcopy(self.reference).to(form.dtype)
        layers = LayerFactory(rounded, form=form)
        return transformer(rounded, layers) or HubDecoder(rounded)

    def in_bfloat16(self) -> Decoder[Any]:
        """The same weights as bfloat16."""
        return self.in_format(floats(torch.bfloat16))

    def expected(self, tokens: list[int]) -> torch.Tensor:
        """Log-probabilities [len(tokens), vocabulary] by transformers, without cache or padding."""
        with torch.inference_mode():
            logits = self.reference(input_ids=torch.tensor([tokens])).logits
        result: torch.Tensor = logits[0].log_softmax(-1)
        return result

    def expected_hidden(self, tokens: list[int]) -> torch.Tensor:
        """Hidden states [len(tokens), hidden] after the final norm, by transformers."""
        with torch.inference_mode():
            output = self.reference(input_ids=torch.tensor([tokens]), output_hidden_states=True)
        result: torch.Tensor = output.hidden_states[-1][0]
        return result


_MADE: dict[str, Tiny] = {}


@pytest.fixture(params=[*WRITTEN_OUT, *THROUGH_HUB])
def tiny(request: pytest.FixtureRequest) -> Tiny:
    name: str = request.param
    if name not in _MADE:
        _MADE[name] = Tiny((WRITTEN_OUT | THROUGH_HUB)[name])
    return _MADE[name]
