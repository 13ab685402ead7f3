"""Load a model from a directory or the hub, and make a TransformersBackend of it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging as transformers_logging

from dragonrt.backends.lora import read_lora
from dragonrt.backends.resources import usual_threads
from dragonrt.backends.transformers_.backend import TransformersBackend, TransformersTokenizer
from dragonrt.errors import ModelError
from dragonrt.side import Precision, TorchDevice

# What no number of a forward depends on.
_BOOKKEEPING = {"transformers_version", "_name_or_path", "dtype", "torch_dtype", "architectures"}

# loading takes no time next to a download, which has its own bar
transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # it has no types


def load_model(
    source: str,
    device: TorchDevice = "auto",
    dtype: Precision = "auto",
    threads: int | None = None,
    adapter: Path | None = None,
) -> TransformersBackend:
    """Load a model from a directory or hub id, merge a LoRA's directory, set torch's threads.

    Raises ModelError if there is no such model, it has no safetensors weights, it is no
    decoder-only language model, the adapter is another model's, or torch has no such device here.
    """
    torch.set_num_threads(usual_threads() if threads is None else threads)
    place = _device(device)
    model, tokenizer = _loaded(source)
    fingerprint = _fingerprint(model)
    model.to(device=place, dtype=_numbers(dtype, place, model))
    if adapter is not None:
        both = f"{fingerprint}\n{merge(model, adapter.expanduser())}".encode()
        fingerprint = hashlib.sha256(both).hexdigest()
    return TransformersBackend(model, tokenizer, fingerprint)


def merge(model: Any, directory: Path) -> str:
    """Add the LoRA in a directory to a model's weights; return the SHA-256 of the LoRA's files.

    Raises ModelError, with the model unchanged, if it cannot be read or is another model's.
    """
    layers, fingerprint = read_lora(directory)
    modules = dict(model.named_modules())
    changes: dict[str, torch.Tensor] = {}
    for name, each in layers.items():
        if name == "lm_head":
            raise ModelError("the adapter changes lm_head: only layers within can be adapted")
        change = each.scale * torch.from_numpy(each.up) @ torch.from_numpy(each.down)
        module, shape = modules.get(name), None
        changes[name] = change = change.T if isinstance(module, Conv1D) else change
        if isinstance(module, (nn.Linear, Conv1D)):
            shape = tuple(module.weight.shape)
        if shape != tuple(change.shape):
            raise ModelError(
                f"the adapter is another model's: {name} is {shape}, not {tuple(change.shape)}"
            )
    for name, change in changes.items():
        weight = modules[name].weight
        weight.data = (weight.float() + change.to(weight.device)).to(weight.dtype)
    return fingerprint


def _loaded(source: str) -> tuple[Any, TransformersTokenizer]:
    try:
        config = AutoConfig.from_pretrained(source)
        if config.is_encoder_decoder or type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise ModelError(
                f"{source} is a {config.model_type} model, not a decoder-only language model"
            )
        tokenizer = AutoTokenizer.from_pretrained(source)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source, config=config, dtype="auto", use_safetensors=True, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        where = (
            " from the hub, which may be out of reach or not have it (its GGUF files are written "
            f"hf.co/{source}:Q4_K_M)"
        )
        raise ModelError(
            f"{source} cannot be loaded as a model with safetensors weights"
            f"{'' if Path(source).is_dir() else where}: {reason}"
        ) from error
    model, report = loaded
    if report["missing_keys"]:
        raise ModelError(f"{source} lacks weights such as {min(report['missing_keys'])}")
    return model.eval().requires_grad_(False), TransformersTokenizer(tokenizer)


def _device(name: TorchDevice) -> torch.device:
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next((kind for kind, there in available.items() if there), "cpu"))
    if not available.get(name, name == "cpu"):
        raise ModelError(f"torch {torch.__version__} finds no {name} backend: use cpu or auto")
    return torch.device(name)


def _numbers(dtype: Precision, device: torch.device, model: Any) -> torch.dtype:
    """Return the type of the weights: on a CPU, auto is bfloat16 where that is fast."""
    if dtype != "auto":
        found: torch.dtype = getattr(torch, dtype)
        return found
    if device.type != "cpu":
        own: torch.dtype = model.dtype
        return own
    return torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else torch.float32


def _fingerprint(model: Any) -> str:
    """Return the SHA-256 of a model's configuration and parameters, before these are converted."""
    config = {k: v for k, v in model.config.to_dict().items() if k not in _BOOKKEEPING}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, parameter in sorted(model.named_parameters()):
        digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}".encode())
        plain = parameter.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(plain.numpy().data)
    return digest.hexdigest()
