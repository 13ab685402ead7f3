"""From a model's name to its backend: bundled, in a directory, in a GGUF file, or on the hub."""

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging as transformers_logging

from dragonrt import bundled
from dragonrt.backends.backend import ModelInfo
from dragonrt.backends.torch_ import weights
from dragonrt.backends.torch_.adapter import Adapter
from dragonrt.backends.torch_.architectures import transformer
from dragonrt.backends.torch_.backend import Decoder, TorchBackend
from dragonrt.backends.torch_.gguf.draft import gguf_model
from dragonrt.backends.torch_.gguf.model import GgufModel
from dragonrt.backends.torch_.int4 import can_multiply_int4
from dragonrt.backends.torch_.int8 import can_quantize
from dragonrt.backends.torch_.linear import has_fast_bfloat16
from dragonrt.backends.torch_.weights import Format, LayerFactory, WeightSource, floats
from dragonrt.backends.transformers_.decoder import TransformersDecoder
from dragonrt.backends.transformers_.tokenizer import TransformersTokenizer
from dragonrt.bundled import SMOLLM2, SMOLLM2_DRAFT
from dragonrt.errors import ModelError
from dragonrt.side import Precision, TorchDevice

# Below this many parameters a CPU is no faster in bfloat16 than in float32.
_SMALL = 50_000_000
# The name of smollm2 on the hub, for it need not be installed.
_SMOLLM2_HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
# What no number of a forward depends on.
_BOOKKEEPING = {"transformers_version", "_name_or_path", "dtype", "torch_dtype", "architectures"}

# loading takes no time next to a download, which has its own bar
transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # it has no types


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A transformers model on its device, with its tokenizer and fingerprint.

    Attributes:
        form: how weights are to be held; None: as they are.
        adapter: what is added to them.
        source: what they are read from.
    """

    model: Any
    tokenizer: Any
    fingerprint: str
    form: Format | None = None
    adapter: Adapter | None = None
    source: WeightSource = field(default_factory=WeightSource)


def load_checkpoint(
    name: str | Path, device: TorchDevice, dtype: Precision, adapter: Path | None = None
) -> Checkpoint:
    """Find and load a model, and a directory's adapter of it.

    Raises ModelError if there is no such model, it has no safetensors weights, it is no
    decoder-only language model, the file is damaged, the adapter is another model's, or torch has
    no such device or type here.
    """
    place = _device(device)
    files = {SMOLLM2: bundled.smollm2_file() or _SMOLLM2_HUB, SMOLLM2_DRAFT: bundled.DRAFT_FILE}
    name = files.get(str(name), name)
    if (path := Path(name).expanduser()).is_file():
        found = _load_file(path, place, dtype)
    else:
        found = _load_model(name, place, dtype)
    if adapter is None:
        return found
    update = Adapter.read(adapter.expanduser())
    update.fit(found.model)
    both = f"{found.fingerprint}\n{update.fingerprint}".encode()
    return replace(found, adapter=update, fingerprint=hashlib.sha256(both).hexdigest())


def backend_of(checkpoint: Checkpoint) -> TorchBackend:
    """Return the own forward of a checkpoint, or else transformers'. Raises ModelError for none."""
    model, tokenizer = checkpoint.model, TransformersTokenizer(checkpoint.tokenizer)
    source, form = checkpoint.source, checkpoint.form or floats(model.dtype)
    parameters = int(model.num_parameters())  # before it is packed
    layers = LayerFactory(model, source, form, checkpoint.adapter)
    decoder: Decoder = transformer(model, layers) or _by_transformers(checkpoint, form)
    geometry = decoder.geometry
    on_cuda = geometry.device.type == "cuda"
    ends = model.generation_config.eos_token_id
    ends = model.config.eos_token_id if ends is None else ends
    info = ModelInfo(
        parameters=parameters,
        fingerprint=checkpoint.fingerprint,
        tokenizer_fingerprint=tokenizer.fingerprint,
        stop_tokens=tuple(ends) if isinstance(ends, list) else () if ends is None else (ends,),
        vocabulary=geometry.vocabulary,
        context_length=geometry.context_length,
        device=geometry.device.type,
        device_memory=int(torch.cuda.mem_get_info()[1]) if on_cuda else None,
        dtype=form.name,
        version=decoder.version,
        exact_blocks=decoder.exact_blocks,
    )
    return TorchBackend(decoder, info, tokenizer)


def _by_transformers(checkpoint: Checkpoint, form: Format) -> TransformersDecoder:
    kind = checkpoint.model.config.model_type
    if form.name in ("int8", "int4"):
        raise ModelError(
            f"{kind} runs by transformers' forward, which {form.name} is not made for: "
            "use bfloat16 or auto"
        )
    if isinstance(checkpoint.source, GgufModel):
        raise ModelError(f"this {kind} model runs from a checkpoint only, not from a GGUF file")
    if checkpoint.adapter is not None:
        checkpoint.adapter.merge(checkpoint.model)
    return TransformersDecoder(checkpoint.model)


def _load_file(path: Path, device: torch.device, dtype: Precision) -> Checkpoint:
    if device.type != "cpu":
        raise ModelError("GGUF files run on the CPU only: use --on cpu, or the model's checkpoint")
    source = gguf_model(path)
    if dtype == "auto" and source.groups and can_multiply_int4():
        form = weights.int4("int4" if source.groups == 1.0 else "mixed", rounds=False)
    else:
        form = _form(dtype, device, source.model)
    return Checkpoint(source.model, source.tokenizer, source.fingerprint, form, source=source)


def _load_model(name: str | Path, device: torch.device, dtype: Precision) -> Checkpoint:
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
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        where = "" if is_path else " from the hub, which may be out of reach or not have it"
        raise ModelError(
            f"{name} cannot be loaded as a model with safetensors weights{where}: {reason}"
        ) from error
    model, report = loaded
    if report["missing_keys"]:
        raise ModelError(f"{name} lacks weights such as {min(report['missing_keys'])}")
    model.eval().requires_grad_(False)
    identity = _fingerprint(model)
    form = _form(dtype, device, model)
    model.to(device=device, dtype=form.dtype)
    return Checkpoint(model, tokenizer, identity, form)


def _source(name: str | Path) -> tuple[str, bool]:
    """Return transformers' name of a model, and whether that is a directory."""
    path = bundled.model_path(str(name)) if name in bundled.models() else Path(name).expanduser()
    if path.is_dir():
        return str(path), True
    if str(name).count("/") != 1:
        raise ModelError(
            f"{name} is neither a bundled model ({', '.join(bundled.models())}), nor "
            f"{SMOLLM2} or {SMOLLM2_DRAFT}, nor a directory, nor a GGUF file, nor a hub id, which "
            "is written owner/name"
        )
    return str(name), False


def _device(name: TorchDevice) -> torch.device:
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next((kind for kind, there in available.items() if there), "cpu"))
    if not available.get(name, name == "cpu"):
        raise ModelError(f"torch {torch.__version__} finds no {name} backend: use cpu or auto")
    return torch.device(name)


def _form(dtype: Precision, device: torch.device, model: Any) -> Format:
    """Return the format of a float model, or of rounded weights."""
    if dtype == "int8":
        if device.type != "cpu" or not can_quantize():
            raise ModelError("int8 needs a CPU that multiplies bytes (VNNI): use bfloat16 or auto")
        return weights.int8()
    if dtype == "int4":
        if device.type != "cpu" or not can_multiply_int4():
            raise ModelError("int4 needs a CPU with AVX2 or AVX-512: use bfloat16 or auto")
        return weights.int4()
    if dtype != "auto":
        return floats(getattr(torch, dtype))
    if device.type != "cpu":
        return floats(model.dtype)
    large = model.num_parameters() >= _SMALL
    return floats(torch.bfloat16 if large and has_fast_bfloat16() else torch.float32)


def _fingerprint(model: Any) -> str:
    """Return the SHA-256 of a model's configuration and parameters, before these are converted."""
    config = {k: v for k, v in model.config.to_dict().items() if k not in _BOOKKEEPING}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, parameter in sorted(model.named_parameters()):
        digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}".encode())
        plain = parameter.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(plain.numpy().data)
    return digest.hexdigest()
