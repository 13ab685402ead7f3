"""Names for weights and vocabularies that differ whenever their content does."""

import hashlib
import json
from typing import Any

import torch

# What the numbers of a forward depend on beside the weights; the rest of a config is bookkeeping.
_BOOKKEEPING = {"transformers_version", "_name_or_path", "dtype", "torch_dtype", "architectures"}


def of_weights(model: Any) -> str:
    """SHA-256 over a transformers model's configuration and parameters, as hexadecimal digits.

    Computed before the weights are converted, so it names the checkpoint, not the dtype it runs in.
    """
    config = {
        key: value for key, value in model.config.to_dict().items() if key not in _BOOKKEEPING
    }
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, parameter in sorted(model.named_parameters()):
        digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}".encode())
        plain = parameter.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(plain.numpy().data)
    return digest.hexdigest()


def of_tokenizer(tokenizer: Any) -> str:
    """SHA-256 over everything that maps text to ids and back, as hexadecimal digits."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        essentials: Any = sorted(tokenizer.get_vocab().items())
    else:
        full = json.loads(backend.to_str())
        essentials = {
            key: full.get(key)
            for key in ("added_tokens", "normalizer", "pre_tokenizer", "model", "decoder")
        }
    text = json.dumps(essentials, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
