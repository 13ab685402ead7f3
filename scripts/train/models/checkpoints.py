"""The files of an adapter in PEFT's layout, and the mean of two adapters."""

import json
import shutil
from pathlib import Path
from typing import Annotated

from safetensors.torch import load_file, save_file

from dragonrt.cli.options import option
from dragonrt.errors import TrainingError

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def average(
    before: Path,
    after: Path,
    out: Path,
    *,
    share: Annotated[float, option("Weight of AFTER in the mean.", default="0.35")] = 0.35,
) -> None:
    """Average, factor by factor, two adapters of which one began from the other.

    What was learnt later and what was known before are both largely there (Wortsman et al. 2022,
    WiSE-FT). Raises TrainingError if their ranks differ.
    """
    configs = [json.loads((path / ADAPTER_CONFIG).read_text()) for path in (before, after)]
    if len({(config["r"], config["lora_alpha"]) for config in configs}) > 1:
        raise TrainingError(
            f"{before} and {after} differ in rank or alpha: average two of one kind"
        )
    one, other = (load_file(path / ADAPTER_WEIGHTS) for path in (before, after))
    tensors = {n: ((1 - share) * one[n].float() + share * other[n].float()).bfloat16() for n in one}
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    shutil.copy(before / ADAPTER_CONFIG, out / ADAPTER_CONFIG)
