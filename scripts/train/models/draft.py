"""Train a draft: some layers of SmolLM2, which learn what all of it says with its adapter."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div

from dragonrt.bundled import SMOLLM2_DRAFT
from dragonrt.cli.options import option
from scripts.bench.reference import transformers_model
from scripts.train.loop import run
from scripts.train.models.adapter import Base
from scripts.train.models.sample import Rows, batches, load, read_rows, states

_ANSWERS = 10.0  # weight of an answer's positions, beside those of documents and questions


def draft(
    samples: Path,
    out: Path,
    *,
    base: Base = None,
    layers: Annotated[
        tuple[int, ...], option("The target's layers that it begins with; else the bundled draft.")
    ] = (),
    steps: Annotated[int, option("Steps in all.", default="1500", low=1)] = 1500,
    rate: Annotated[float, option("Highest learning rate.", default="0.001")] = 1e-3,
    positions: Annotated[int, option("Tokens of a step at most.", default="1100", low=1)] = 1100,
    seed: Annotated[int, option("Of the samples' order.", default="1", low=0)] = 1,
) -> None:
    """Train a draft and write OUT/draft, a checkpoint of transformers. A stopped run resumes.

    Args:
        samples: what `adapter-samples` wrote.
        out: a directory.
    """
    target, tokenizer = load(base, adapted=True)
    model = deepcopy(target) if layers else transformers_model(SMOLLM2_DRAFT)
    if layers:
        model.model.layers = nn.ModuleList(model.model.layers[i] for i in layers)
        model.config.num_hidden_layers = len(layers)
    model.float().requires_grad_(False)
    for part in (model.model.layers, model.model.norm):
        part.requires_grad_(True)

    def loss(step: int, batch: Sequence[Rows]) -> Tensor:
        """Return the divergence KL(target || draft), weighted, of all positions."""
        rows = [row for each in batch for row in each.rows]
        with torch.no_grad():
            aims = states(target, rows)
        total, weight = torch.zeros(()), 0.0
        for row, aim, own in zip(rows, aims, states(model, rows), strict=True):
            weights = torch.ones(len(row.tokens))
            weights[[at for at, *_ in row.targets]] = _ANSWERS
            with torch.no_grad():
                aimed = target.lm_head(aim[: len(weights)]).float().log_softmax(-1)
            drafted = model.lm_head(own[: len(weights)]).log_softmax(-1)
            far = kl_div(drafted, aimed, reduction="none", log_target=True).sum(1)
            total, weight = total + (far * weights).sum(), weight + float(weights.sum())
        return total / weight

    def save() -> None:
        for part in (model, tokenizer):
            part.save_pretrained(out / "draft")

    made = batches(read_rows(samples, tokenizer), seed, positions)
    run(model, made, loss, save, out / "draft.state", steps=steps, rate=rate)
