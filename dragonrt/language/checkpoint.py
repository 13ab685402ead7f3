"""From a model's name to its weights: bundled, in a directory, or on the hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging as transformers_logging

from dragonrt import bundled
from dragonrt.errors import ModelError
from dragonrt.language import fingerprint
from dragonrt.language.linear import has_fast_bfloat16
from dragonrt.language.quantized import can_quantize
from dragonrt.side import Backend, Precision

# Below this many parameters a CPU is no faster in bfloat16 than in float32.
_SMALL = 50_000_000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A transformers model, converted and on its device, with its tokenizer and fingerprint.

    `int8`: the weights of its linear layers are to be rounded to 8 bits.
    """

    model: Any
    tokenizer: Any
    fingerprint: str
    int8: bool = False


# loading takes no time next to a download, which has its own bar
transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # it has no types


def load_checkpoint(name: str | Path, on: Backend, dtype: Precision) -> Checkpoint:
    """Find and load a model.

    Raises:
        ModelError: there is no such model, it has no safetensors weights, it is no decoder-only
            language model, or torch has no such backend here.
    """
    device = _device(on)
    source, is_path = _source(name)
    try:
        config = AutoConfig.from_pretrained(source)
        if config.is_encoder_decoder or type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise ModelError(
                f"{name} is a {config.model_type} model, not a decoder-only language model"
            )
        tokenizer = AutoTokenizer.from_pretrained(source)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source, config=config, dtype="auto", use_safetensors=True, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(_explain(name, is_path, error)) from error
    model, report = loaded
    if report["missing_keys"]:
        raise ModelError(f"{name} lacks weights such as {min(report['missing_keys'])}")
    model.eval().requires_grad_(False)
    identity = fingerprint.of_weights(model)
    model.to(device=device, dtype=_dtype(dtype, device, model))
    return Checkpoint(model, tokenizer, identity, dtype == "int8")


def _source(name: str | Path) -> tuple[str, bool]:
    """What transformers is given, and whether that is a directory."""
    if name in bundled.models():
        return str(bundled.model_path(str(name))), True
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path), True
    if str(name).count("/") != 1:
        raise ModelError(
            f"{name} is neither a bundled model ({', '.join(bundled.models())}), nor a directory, "
            "nor a hub id, which is written owner/name"
        )
    return str(name), False


def _explain(name: str | Path, is_path: bool, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if is_path:
        return f"{name} cannot be loaded as a model with safetensors weights: {reason}"
    if "safetensors" in str(error):
        return f"{name} offers no safetensors weights: choose a model that does"
    return (
        f"{name} is neither a bundled model ({', '.join(bundled.models())}), nor a directory, "
        f"and the hub could not be reached or does not have it: {reason}"
    )


def _device(on: Backend) -> torch.device:
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if on == "auto":
        return torch.device(next((kind for kind, there in available.items() if there), "cpu"))
    if not available.get(on, on == "cpu"):
        raise ModelError(f"torch {torch.__version__} finds no {on} backend: use cpu or auto")
    return torch.device(on)


def _dtype(dtype: Precision, device: torch.device, model: Any) -> torch.dtype:
    """What the model is converted to; with weights of 8 bits, what is computed between them."""
    if dtype == "int8":
        if device.type != "cpu" or not can_quantize():
            raise ModelError("int8 needs a CPU that multiplies bytes (VNNI): use bfloat16 or auto")
        return torch.bfloat16 if has_fast_bfloat16() else torch.float32
    if dtype != "auto":
        named: torch.dtype = getattr(torch, dtype)
        return named
    if device.type != "cpu":
        stored: torch.dtype = model.dtype
        return stored
    large = model.num_parameters() >= _SMALL
    return torch.bfloat16 if large and has_fast_bfloat16() else torch.float32
