"""The shapes of the dragon-* models, and how a trained one is written to disk."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    OPTConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

LONGEST_ANSWER = 64  # tokens, the default of the saved generation settings


def configuration(name: str, tokenizer: PreTrainedTokenizerFast) -> PretrainedConfig:
    """The configuration of `small`, `draft` or `opt`, for the tokenizer's vocabulary."""
    ids: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "tie_word_embeddings": True,
    }
    if name == "opt":
        return OPTConfig(
            hidden_size=224,
            word_embed_proj_dim=224,
            num_hidden_layers=4,
            num_attention_heads=4,
            ffn_dim=896,
            max_position_embeddings=512,
            dropout=0.0,
            attention_dropout=0.0,
            init_std=0.02,
            **ids,
        )
    shapes: dict[str, dict[str, Any]] = {
        "small": {
            "hidden_size": 256,
            "num_hidden_layers": 5,
            "head_dim": 64,
            "intermediate_size": 704,
            "initializer_range": 0.02,
        },
    }
    shapes["draft"] = shapes["small"] | {"num_hidden_layers": 3}  # it begins as a part of small
    return LlamaConfig(
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        rms_norm_eps=1e-5,
        **shapes[name],
        **ids,
    )


def initialized(
    config: PretrainedConfig, device: str, begin: Path | None = None
) -> PreTrainedModel:
    """A model in float32: random weights, or those of the trained model `begin`.

    One with fewer layers takes its first ones. Those of dragon-small copy from the document
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
    model.save_pretrained(unfinished, state_dict=_untied_weights(model))
    config = json.loads((unfinished / "config.json").read_text())
    config["dtype"] = config["torch_dtype"] = "bfloat16"
    if "rope_parameters" in config:
        config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    (unfinished / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        max_new_tokens=LONGEST_ANSWER,
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


def _untied_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    # The output layer is the embedding matrix and is stored once.
    return {
        name: weight.detach().to(torch.bfloat16)
        for name, weight in model.state_dict().items()
        if name != "lm_head.weight"
    }
