"""What a GGUF file's metadata and tensor names mean to transformers.

llama.cpp's converter changed some weights, which is undone: rows of Llama's query and key weights
are stored in another order, Gemma's norms with 1 added.
"""

import re
from collections.abc import Callable
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PretrainedConfig

from dragonrt.backends.torch_.gguf.file import GgufFile
from dragonrt.errors import ModelError

_LONGEST = 131_072
"""Tables of rotations have a row for every position: a longer context is cut to this."""
_ABSURD = 2**26

_ENDS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
}
_PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
}
_NORMS_BEHIND = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_WITH_NORMS_BEHIND = ("gemma2", "gemma3", "olmo2")
PERMUTED = ("llama", "smollm3")
"""Architectures of whose query and key rows the two halves of a head are interleaved."""
RAISED_NORMS = ("gemma2", "gemma3")
"""Architectures whose norms are stored with 1 added."""
_LAYER = re.compile(r"(?:model\.layers|transformer\.h)\.(\d+)\.(.+)")


def stored_as(architecture: str, parameter: str) -> str:
    """The name in the file of a transformers model's parameter."""
    module, _, kind = parameter.rpartition(".")
    inside = _LAYER.fullmatch(module)
    if inside is None:
        return f"{_ENDS[module]}.{kind}"
    number, part = inside.groups()
    parts = _PARTS | _NORMS_BEHIND if architecture in _WITH_NORMS_BEHIND else _PARTS
    return f"blk.{number}.{parts[part]}.{kind}"


def configuration(file: GgufFile) -> PretrainedConfig:
    """The transformers configuration of a file.

    Raises:
        ModelError: another architecture, values that are missing or absurd.
    """
    values = _Values(file)
    reader = _READERS.get(values.architecture)
    if reader is None:
        raise ModelError(
            f"{file.path} is a {values.architecture} model; of GGUF files "
            f"{', '.join(sorted(_READERS))} are read"
        )
    if values.optional("expert_count", 0):
        raise ModelError(f"{file.path} is a mixture of experts, which is not read")
    model_type, options = reader(values)
    try:
        return AutoConfig.for_model(model_type, **options)
    except (ValueError, TypeError, KeyError, ArithmeticError, StrictDataclassError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise ModelError(f"{file.path} describes no {model_type} model: {reason}") from error


class _Values:
    """The metadata of one architecture, checked as it is read."""

    def __init__(self, file: GgufFile) -> None:
        self.file, self.tensors = file, file.tensors
        self.architecture = str(file.metadata.get("general.architecture", "nameless"))

    def optional(self, key: str, default: Any) -> Any:
        """A value of the type of `default`."""
        found = self.file.metadata.get(f"{self.architecture}.{key}", default)
        if isinstance(default, float) and isinstance(found, int):
            found = float(found)
        if type(found) is not type(default):
            raise ModelError(f"{self.file.path} has a {self.architecture}.{key} of no use: {found}")
        return found

    def count(self, key: str, default: int = 0) -> int:
        """A size or number; some are stored per layer and must then be equal."""
        found = self.file.metadata.get(f"{self.architecture}.{key}", default)
        if hasattr(found, "tolist") and len(set(found.tolist())) == 1:
            found = found.tolist()[0]
        if type(found) is not int or not 0 < found <= _ABSURD:
            raise ModelError(f"{self.file.path} has {self.architecture}.{key} = {found}")
        return found

    def sizes(self) -> dict[str, Any]:
        """What every architecture has."""
        embedding = self.tensors.get("token_embd.weight")
        layers = self.count("block_count")
        if embedding is None or layers > len(self.tensors):
            raise ModelError(
                f"{self.file.path} lacks tensors: it has {len(self.tensors)} of {layers} layers"
            )
        return {
            "vocab_size": embedding.shape[0],
            "tie_word_embeddings": "output.weight" not in self.tensors,
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
        }

    def rotary(self) -> dict[str, Any]:
        """The options that all rotary architectures share."""
        heads, hidden = self.count("attention.head_count"), self.count("embedding_length")
        rotated = self.count("rope.dimension_count", max(1, hidden // heads))
        return self.sizes() | {
            "hidden_size": hidden,
            "intermediate_size": self.count("feed_forward_length"),
            "num_hidden_layers": self.count("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self.count("attention.head_count_kv", heads),
            "head_dim": self.count("attention.key_length", rotated),
            "max_position_embeddings": min(_LONGEST, self.count("context_length")),
            "rms_norm_eps": self.optional("attention.layer_norm_rms_epsilon", 1e-6),
            "rope_parameters": self.rotation(),
        }

    def rotation(self, base: str = "rope.freq_base", default: float = 10_000.0) -> dict[str, Any]:
        """The rope parameters; Llama 3's factors are a tensor, and applied to the frequencies."""
        found: dict[str, Any] = {
            "rope_type": "default",
            "rope_theta": self.optional(base, default),
        }
        kind = self.optional("rope.scaling.type", "none")
        if kind == "none":
            return found
        if kind not in ("linear", "yarn"):
            raise ModelError(f"{self.file.path} scales positions by {kind}, which is not read")
        found |= {"rope_type": kind, "factor": self.optional("rope.scaling.factor", 1.0)}
        if kind == "yarn":
            key = "rope.scaling.original_context_length"
            found["original_max_position_embeddings"] = self.count(key)
        return found

    def has(self, tensor: str) -> bool:
        """Whether the first layer has this tensor."""
        return f"blk.0.{tensor}" in self.tensors


_Read = tuple[str, dict[str, Any]]


def _llama(values: _Values) -> _Read:
    """Llama, and Mistral, which llama.cpp does not tell apart."""
    biases = {"attention_bias": values.has("attn_q.bias"), "mlp_bias": values.has("ffn_up.bias")}
    return "llama", values.rotary() | biases


def _plain(model_type: str) -> Callable[[_Values], _Read]:
    return lambda values: (model_type, values.rotary())


def _phi3(values: _Values) -> _Read:
    options = values.rotary()
    head_dim = options["hidden_size"] // options["num_attention_heads"]
    rotated = values.count("rope.dimension_count", head_dim) / head_dim
    options["rope_parameters"]["partial_rotary_factor"] = rotated
    del options["head_dim"]
    window = values.optional("attention.sliding_window", 0)
    options["original_max_position_embeddings"] = options["max_position_embeddings"]
    return "phi3", options | {"sliding_window": window or None}


def _gemma(values: _Values) -> dict[str, Any]:
    options = values.rotary()
    options["head_dim"] = values.count("attention.key_length", 256)
    largest = {"gemma2": 46, "gemma3": 62}[values.architecture]  # layers of the 27 B model
    by_heads = options["num_hidden_layers"] == largest
    per_head = options["hidden_size"] // options["num_attention_heads"]
    return options | {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": per_head if by_heads else options["head_dim"],
        "sliding_window": values.count("attention.sliding_window", 4096),
    }


def _gemma2(values: _Values) -> _Read:
    return "gemma2", _gemma(values) | {
        "attn_logit_softcapping": values.optional("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": values.optional("final_logit_softcapping", 30.0),
    }


def _gemma3(values: _Values) -> _Read:
    options = _gemma(values)
    local = {"rope_type": "default", "rope_theta": values.optional("rope.freq_base_swa", 10_000.0)}
    options["rope_parameters"] = {
        "full_attention": values.rotation(default=1_000_000.0),
        "sliding_attention": local,
    }
    return "gemma3_text", options | {
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    }


def _gpt2(values: _Values) -> _Read:
    return "gpt2", values.sizes() | {
        "n_embd": values.count("embedding_length"),
        "n_layer": values.count("block_count"),
        "n_head": values.count("attention.head_count"),
        "n_inner": values.count("feed_forward_length"),
        "n_positions": min(_LONGEST, values.count("context_length")),
        "layer_norm_epsilon": values.optional("attention.layer_norm_epsilon", 1e-5),
    }


_READERS: dict[str, Callable[[_Values], _Read]] = {
    "llama": _llama,
    "qwen2": _plain("qwen2"),
    "qwen3": _plain("qwen3"),
    "smollm3": _plain("smollm3"),
    "olmo2": _plain("olmo2"),
    "phi3": _phi3,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gpt2": _gpt2,
}
