"""The transformers configuration that a GGUF file's metadata describes."""

from collections.abc import Callable
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PretrainedConfig

from dragonrt.backends.torch_.gguf.file import GgufFile
from dragonrt.errors import ModelError

_LONGEST = 131_072
"""Tables of rotations have a row for every position: a longer context is cut to this."""
_ABSURD = 2**26

Options = dict[str, Any]


def configuration(file: GgufFile) -> PretrainedConfig:
    """Return the transformers configuration of a file.

    Raises ModelError for another architecture, and values that are missing or absurd.
    """
    values = _Values(file)
    if values.architecture not in _READERS:
        raise ModelError(
            f"{file.path} is a {values.architecture} model; of GGUF files "
            f"{', '.join(sorted(_READERS))} are read"
        )
    if values.get("expert_count", 0):
        raise ModelError(f"{file.path} is a mixture of experts, which is not read")
    model_type, read = _READERS[values.architecture]
    try:
        return AutoConfig.for_model(model_type, **read(values))
    except (ValueError, TypeError, KeyError, ArithmeticError, StrictDataclassError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise ModelError(f"{file.path} describes no {model_type} model: {reason}") from error


class _Values:
    """The metadata of one architecture, checked as it is read."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.architecture = str(file.metadata.get("general.architecture", "nameless"))

    def get(self, key: str, default: Any) -> Any:
        """Return a value of the type of `default`."""
        found = self.file.metadata.get(f"{self.architecture}.{key}", default)
        if isinstance(default, float) and isinstance(found, int):
            found = float(found)
        if type(found) is not type(default):
            raise ModelError(f"{self.file.path} has a {self.architecture}.{key} of no use: {found}")
        return found

    def count(self, key: str, default: int = 0) -> int:
        """Return a size or number; some are stored per layer and must then be equal."""
        found = self.file.metadata.get(f"{self.architecture}.{key}", default)
        if hasattr(found, "tolist") and len(set(found.tolist())) == 1:
            found = found.tolist()[0]
        if type(found) is not int or not 0 < found <= _ABSURD:
            raise ModelError(f"{self.file.path} has {self.architecture}.{key} = {found}")
        return found

    def has(self, tensor: str) -> bool:
        """Return whether the first layer has this tensor."""
        return f"blk.0.{tensor}" in self.file.tensors


def _sizes(values: _Values) -> Options:
    """Return what every architecture has."""
    tensors = values.file.tensors
    embedding, layers = tensors.get("token_embd.weight"), values.count("block_count")
    if embedding is None or layers > len(tensors):
        raise ModelError(
            f"{values.file.path} lacks tensors: it has {len(tensors)} of {layers} layers"
        )
    tied = "output.weight" not in tensors
    tokens = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    return tokens | {"vocab_size": embedding.shape[0], "tie_word_embeddings": tied}


def _rotary(values: _Values) -> Options:
    heads, hidden = values.count("attention.head_count"), values.count("embedding_length")
    rotated = values.count("rope.dimension_count", max(1, hidden // heads))
    return _sizes(values) | {
        "hidden_size": hidden,
        "intermediate_size": values.count("feed_forward_length"),
        "num_hidden_layers": values.count("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": values.count("attention.head_count_kv", heads),
        "head_dim": values.count("attention.key_length", rotated),
        "max_position_embeddings": min(_LONGEST, values.count("context_length")),
        "rms_norm_eps": values.get("attention.layer_norm_rms_epsilon", 1e-6),
        "rope_parameters": _rotation(values),
    }


def _rotation(values: _Values, default: float = 10_000.0) -> Options:
    """Return the rope parameters; Llama 3's factors are a tensor, applied to the frequencies."""
    found = {"rope_type": "default", "rope_theta": values.get("rope.freq_base", default)}
    kind = values.get("rope.scaling.type", "none")
    if kind == "none":
        return found
    if kind not in ("linear", "yarn"):
        raise ModelError(f"{values.file.path} scales positions by {kind}, which is not read")
    found |= {"rope_type": kind, "factor": values.get("rope.scaling.factor", 1.0)}
    if kind == "yarn":
        original = values.count("rope.scaling.original_context_length")
        found["original_max_position_embeddings"] = original
    return found


def _llama(values: _Values) -> Options:
    """Llama, and Mistral, which llama.cpp does not tell apart."""
    biases = {"attention_bias": values.has("attn_q.bias"), "mlp_bias": values.has("ffn_up.bias")}
    return _rotary(values) | biases


def _phi3(values: _Values) -> Options:
    options = _rotary(values)
    del options["head_dim"]
    head_dim = options["hidden_size"] // options["num_attention_heads"]
    rotated = values.count("rope.dimension_count", head_dim) / head_dim
    options["rope_parameters"]["partial_rotary_factor"] = rotated
    return options | {
        "original_max_position_embeddings": options["max_position_embeddings"],
        "sliding_window": values.get("attention.sliding_window", 0) or None,
    }


def _gemma(values: _Values) -> Options:
    options = _rotary(values)
    head_dim = values.count("attention.key_length", 256)
    largest = {"gemma2": 46, "gemma3": 62}[values.architecture]  # layers of the 27 B model
    by_heads = options["num_hidden_layers"] == largest
    per_head = options["hidden_size"] // options["num_attention_heads"]
    return options | {
        "head_dim": head_dim,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": per_head if by_heads else head_dim,
        "sliding_window": values.count("attention.sliding_window", 4096),
    }


def _gemma2(values: _Values) -> Options:
    caps = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    return _gemma(values) | {key: values.get(key, default) for key, default in caps.items()}


def _gemma3(values: _Values) -> Options:
    local = {"rope_type": "default", "rope_theta": values.get("rope.freq_base_swa", 10_000.0)}
    kinds = {"full_attention": _rotation(values, 1_000_000.0), "sliding_attention": local}
    caps = dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"))
    return _gemma(values) | {"rope_parameters": kinds} | caps


def _gpt2(values: _Values) -> Options:
    return _sizes(values) | {
        "n_embd": values.count("embedding_length"),
        "n_layer": values.count("block_count"),
        "n_head": values.count("attention.head_count"),
        "n_inner": values.count("feed_forward_length"),
        "n_positions": min(_LONGEST, values.count("context_length")),
        "layer_norm_epsilon": values.get("attention.layer_norm_epsilon", 1e-5),
    }


_READERS: dict[str, tuple[str, Callable[[_Values], Options]]] = {
    "llama": ("llama", _llama),
    "qwen2": ("qwen2", _rotary),
    "qwen3": ("qwen3", _rotary),
    "smollm3": ("smollm3", _rotary),
    "olmo2": ("olmo2", _rotary),
    "phi3": ("phi3", _phi3),
    "gemma2": ("gemma2", _gemma2),
    "gemma3": ("gemma3_text", _gemma3),
    "gpt2": ("gpt2", _gpt2),
}
