"""Average the weights of two trainings that began from one (Wortsman et al. 2022, WiSE-FT).

    python -m scripts.train.models.average BEFORE AFTER OUT --share 0.35

What was learnt later and what was known before are both largely there: see README.md.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from .architectures import save

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def average(before: Path, after: Path, share: float, out: Path) -> None:
    """Save (1 - share) `before` + share `after`: adapters, or models of one shape and tokenizer.

    Adapters are averaged factor by factor, which is sound where one was trained on from the other.
    """
    if (before / _CONFIG).exists():
        _average_adapters(before, after, share, out)
        return
    model, other = (
        AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32) for path in (before, after)
    )
    weights = other.state_dict()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_((1 - share) * weight + share * weights[name])
    save(model, PreTrainedTokenizerFast.from_pretrained(before), out)


def _average_adapters(before: Path, after: Path, share: float, out: Path) -> None:
    configs = [json.loads((path / _CONFIG).read_text(encoding="utf-8")) for path in (before, after)]
    if len({(config["r"], config["lora_alpha"]) for config in configs}) > 1:
        raise ValueError(f"{before} and {after} differ in rank or alpha")
    one, other = (load_file(path / _WEIGHTS) for path in (before, after))
    mixed = {n: (1 - share) * one[n].float() + share * other[n].float() for n in one}
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.bfloat16() for name, tensor in mixed.items()}
    save_file(tensors, out / _WEIGHTS, metadata={"format": "pt"})
    shutil.copy(before / _CONFIG, out / _CONFIG)


def main() -> None:
    parser = argparse.ArgumentParser(description="Average two models or adapters.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--share", type=float, default=0.35, help="of the weights after")
    args = parser.parse_args()
    average(args.before, args.after, args.share, args.out)


if __name__ == "__main__":
    main()
