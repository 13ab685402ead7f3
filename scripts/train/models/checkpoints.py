"""The shapes of the dragon models; trained ones are written and averaged."""

import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from dragonrt.cli.options import option
from dragonrt.errors import TrainingError

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_LONGEST_ANSWER = 64  # tokens, the default of the saved generation settings


def configuration(name: str, tokenizer: PreTrainedTokenizerFast) -> PretrainedConfig:
    """Return the configuration of `small` or `draft`, for the tokenizer's vocabulary."""
    ids: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "tie_word_embeddings": True,
    }
    shape = json.loads((Path(__file__).parent / "text" / "shapes.json").read_text())[name]
    config: PretrainedConfig = AutoConfig.for_model(**shape, **ids)
    return config


def initialized(
    config: PretrainedConfig, device: str, begin: Path | None = None
) -> PreTrainedModel:
    """Return a model in float32: random weights, or those of the trained model `begin`.

    One with fewer layers gets its first ones. Those of dragon-small copy from the document
    already: without any training the first three have its best next token in 0.87 of an answer's.
    """
    model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        config, dtype=torch.float32
    )
    if begin is not None:
        trained = AutoModelForCausalLM.from_pretrained(begin, dtype=torch.float32).state_dict()
        model.load_state_dict({name: trained[name] for name in model.state_dict()})
    model.to(device)  # type: ignore[arg-type]
    return model


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    """Write a model and its tokenizer as bfloat16 safetensors that transformers 4 and 5 load.

    The directory is replaced as a whole: a crash leaves the old model or the new one.
    """
    unfinished = directory.with_name(directory.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    # The output layer is the embedding matrix and is stored once.
    weights = {
        name: weight.detach().to(torch.bfloat16)
        for name, weight in model.state_dict().items()
        if name != "lm_head.weight"
    }
    model.save_pretrained(unfinished, state_dict=weights)
    config = json.loads((unfinished / "config.json").read_text())
    config["dtype"] = config["torch_dtype"] = "bfloat16"
    if "rope_parameters" in config:
        config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    (unfinished / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        max_new_tokens=_LONGEST_ANSWER,
        do_sample=False,
    ).save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    settings = json.loads((unfinished / "tokenizer_config.json").read_text())
    for local in ("backend", "is_local", "local_files_only"):
        settings.pop(local, None)
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    (unfinished / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    replaced = directory.with_name(directory.name + ".replaced")
    shutil.rmtree(replaced, ignore_errors=True)
    if directory.exists():
        directory.rename(replaced)
    unfinished.rename(directory)
    shutil.rmtree(replaced, ignore_errors=True)


def average(
    before: Path,
    after: Path,
    out: Path,
    *,
    share: Annotated[float, option("Weight of AFTER in the mean.", default="0.35")] = 0.35,
) -> None:
    """Average the weights of two trainings, of which one began from the other.

    What was learnt later and what was known before are both largely there (Wortsman et al. 2022,
    WiSE-FT). Models, or adapters factor by factor. Raises TrainingError if their ranks differ.
    """
    if (before / ADAPTER_CONFIG).exists():
        _average_adapters(before, after, share, out)
        return
    model, other = (
        AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32) for path in (before, after)
    )
    mixed = _mixed(model.state_dict(), other.state_dict(), share)
    model.load_state_dict(mixed)
    save(model, PreTrainedTokenizerFast.from_pretrained(before), out)


def _mixed(one: dict[str, Tensor], other: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    return {n: (1 - share) * one[n].float() + share * other[n].float() for n in one}


def _average_adapters(before: Path, after: Path, share: float, out: Path) -> None:
    configs = [json.loads((path / ADAPTER_CONFIG).read_text()) for path in (before, after)]
    if len({(config["r"], config["lora_alpha"]) for config in configs}) > 1:
        raise TrainingError(
            f"{before} and {after} differ in rank or alpha: average two of one kind"
        )
    mixed = _mixed(load_file(before / ADAPTER_WEIGHTS), load_file(after / ADAPTER_WEIGHTS), share)
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.bfloat16() for name, tensor in mixed.items()}
    save_file(tensors, out / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    shutil.copy(before / ADAPTER_CONFIG, out / ADAPTER_CONFIG)
