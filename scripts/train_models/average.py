"""Average the weights of two trainings that began from one (Wortsman et al. 2022, WiSE-FT).

    python -m train_models.average BEFORE AFTER OUT --share 0.35

What was learnt later and what was known before are both largely there: see README.md.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from .architectures import save


def average(before: Path, after: Path, share: float, out: Path) -> None:
    """Save (1 - share) `before` + share `after`: models of one shape and tokenizer."""
    model, other = (
        AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32) for path in (before, after)
    )
    weights = other.state_dict()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_((1 - share) * weight + share * weights[name])
    save(model, PreTrainedTokenizerFast.from_pretrained(before), out)


def main() -> None:
    parser = argparse.ArgumentParser(description="Average the weights of two models.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--share", type=float, default=0.35, help="of the weights after")
    args = parser.parse_args()
    average(args.before, args.after, args.share, args.out)


if __name__ == "__main__":
    main()
