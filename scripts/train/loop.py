"""One training loop: Adam, a schedule, a log and a state from which a stopped run resumes."""

import json
import math
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from dragonrt.cli.loading import showing_progress

_SAVE_EVERY = 300.0  # seconds
_LARGEST_GRADIENT = 1.0
_WARMUP = 30  # steps
_LOWEST = 0.02  # the last rate, as a share of the highest
_BETAS = (0.9, 0.98)

B = TypeVar("B")


def rate_at(step: int, steps: int) -> float:
    """Return the share of the highest rate: a linear warm-up, then half a cosine."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return min(1.0, (step + 1) / _WARMUP) * (_LOWEST + (1 - _LOWEST) * cosine)


def run(
    model: nn.Module,
    batches: Iterable[B],
    loss_of: Callable[[int, B], Tensor],
    save: Callable[[], None],
    state: Path,
    *,
    steps: int,
    rate: float,
) -> None:
    """Train the parameters of `model` that require gradients, that many steps in all.

    `batches` are the same ones in every run, and all chance of a loss comes from the step's number.
    `state` is written every five minutes and at the end, and the model then by `save`. A run that
    finds it continues with the batch that would have been next, so it ends as an uninterrupted run
    does. Each step is a line in the file of the same name with the suffix `.log.jsonl`.
    """
    state.parent.mkdir(parents=True, exist_ok=True)
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer, done = torch.optim.Adam(trained, lr=rate, betas=_BETAS), 0
    if state.exists():
        saved = torch.load(state, weights_only=True)
        done = saved["steps"]
        optimizer.load_state_dict(saved["optimizer"])
        for parameter, value in zip(trained, saved["parameters"], strict=True):
            parameter.data.copy_(value)
    saved_at = time.monotonic()
    with showing_progress("training") as show, state.with_suffix(".log.jsonl").open("a") as log:
        for step, batch in islice(enumerate(batches), done, steps):
            for group in optimizer.param_groups:
                group["lr"] = rate * rate_at(step, steps)
            loss = loss_of(step, batch)
            loss.backward()  # type: ignore[no-untyped-call]
            norm = float(nn.utils.clip_grad_norm_(trained, _LARGEST_GRADIENT))
            if math.isfinite(norm):
                optimizer.step()
            optimizer.zero_grad()
            print(json.dumps({"step": step + 1, "loss": loss.item(), "norm": norm}), file=log)
            show(step + 1, steps, f"loss {loss.item():.3f}")
            if step + 1 == steps or time.monotonic() - saved_at > _SAVE_EVERY:
                save()
                kept = {"steps": step + 1, "optimizer": optimizer.state_dict()}
                unfinished = state.with_suffix(".unfinished")
                torch.save({**kept, "parameters": [each.data for each in trained]}, unfinished)
                unfinished.replace(state)
                saved_at = time.monotonic()
