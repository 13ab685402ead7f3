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


def of_parts(*names: str) -> str:
    """SHA-256 over several of these names."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def of_tokenizer(tokenizer: Any) -> str:
    """SHA-256 over everything that maps ids to text, as hexadecimal digits.

    How a text is split into tokens is left out: it differs between a GGUF file and the checkpoint
    that it was made of, and each side reads its own texts.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = None if backend is None else json.loads(backend.decoder.__getstate__())
    if decoder is not None and decoder["type"] == "ByteLevel":
        decoder = {"type": "ByteLevel"}  # its options are for encoding
    essentials = [sorted(tokenizer.get_vocab().items()), decoder]
    text = json.dumps(essentials, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
