"""Statistics of the inputs of linear layers, by which the reader's file is rounded."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from transformers import AutoTokenizer

from dragonrt.cli.loading import counting
from dragonrt.cli.options import option

from .adapter import Rows, batch_of, encoded
from .adapter_model import GROUPS, Adapter, Llama
from .files import config_of, llama_cpp_name
from .sample import Reading


def adapter_inputs(
    base: Path,
    adapter: Path,
    samples: Path,
    out: Path,
    *,
    n: Annotated[int, option("Samples that are read.", default="120", low=1)] = 120,
) -> None:
    """Write the mean squares of the inputs of each linear layer, as `adapter-file` reads them.

    Args:
        base: checkpoint of the Llama model.
        adapter: a directory in PEFT's layout.
        samples: what `adapter-samples` wrote, of all kinds of text; each position counts once.
        out: the npz file.
    """
    torch.set_num_threads(1)
    tokenizer, model = AutoTokenizer.from_pretrained(base), Adapter(Llama.read(base), adapter)
    model.inputs, positions = {}, 0
    lines = samples.read_text("utf-8").splitlines()[:n]
    with torch.no_grad(), counting("reading samples") as show:
        for number, line in enumerate(lines):
            made = encoded(tokenizer, Reading.read(line))
            for row in made.rows if made else ():
                model.logits(batch_of([Rows([row], [])]))  # alone, so that nothing is padded
                positions += len(row.tokens)
            show(number + 1, len(lines), f"{positions} positions")
    config, found = config_of(base), dict[str, Any]()
    for key, squares in model.inputs.items():
        layer, _, group = key.partition(".")
        for module in GROUPS[group]:
            name = llama_cpp_name(f"model.layers.{layer}.{module}.weight", config)
            found[name] = (squares / positions).numpy()
    np.savez(out, **found)
