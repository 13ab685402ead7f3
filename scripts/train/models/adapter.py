"""Train a LoRA adapter of a Llama model for answers from documents, in the chat prompt."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

import torch
import torch.nn.functional as F  # noqa: N812
from cyclopts import Parameter
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from dragonrt.cli.options import option
from scripts.train.loop import Losses, Schedule, run

from .adapter_model import Adapter, Llama
from .batches import Batch, of_like_length, padded
from .sample import Reading

SYSTEM = "You answer questions from the given document in a few words."
_LONGEST = 900  # tokens of a sample
_POOL = 96  # samples of which those of like length are put into one batch
_FIRST_WEIGHT = 2.0  # of an answer's first token, which decides whether it is a refusal


@dataclass(frozen=True, slots=True)
class Encoded:
    """One row; the document's tokens are of branch 0.

    A target is the position before it, its token, and whether it is an answer's first.
    """

    tokens: list[int]
    positions: list[int]
    branches: list[int]
    targets: list[tuple[int, int, bool]]


def encoded(tokenizer: PreTrainedTokenizerBase, reading: Reading) -> Encoded | None:
    """Render a sample in the chat prompt without what does not fit; None if nothing is left."""

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False).input_ids)

    tokens = ids(f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{reading.document}")
    begin = len(tokens)
    positions, branches = list(range(begin)), [0] * begin
    targets: list[tuple[int, int, bool]] = []
    for number, turns in enumerate(reading.branches, 1):
        own: list[int] = []
        own_targets = []
        for i, (question, answer) in enumerate(turns):
            before = "\n<|im_start|>user\n" if i else "\n\n"
            own += ids(
                f"{before}Question: {question}\nGive a short answer.<|im_end|>\n"
                "<|im_start|>assistant\n"
            )
            answered = ids(f"{answer}<|im_end|>")
            at = len(tokens) + len(own) - 1
            own_targets += [(at + j, token, j == 0) for j, token in enumerate(answered)]
            own += answered
        own.pop()
        if len(tokens) + len(own) > _LONGEST:
            break
        targets += own_targets
        positions += range(begin, begin + len(own))
        branches += [number] * len(own)
        tokens += own
    return Encoded(tokens, positions, branches, targets) if targets else None


def batch_of(samples: Sequence[Encoded]) -> Batch:
    """Pad samples to one length."""
    tokens, positions, bias = padded(samples)
    length = tokens.shape[1]
    targets = [(i * length + at, *rest) for i, s in enumerate(samples) for at, *rest in s.targets]
    selected, wanted, first = (torch.tensor(column) for column in zip(*targets, strict=True))
    weights = torch.where(first, _FIRST_WEIGHT, 1.0)
    return Batch(tokens, bias, positions, selected, wanted, weights, torch.ones_like(first))


def batches(samples: Sequence[Encoded], r: Random, budget: int) -> Iterator[Batch]:
    """Yield batches of at most `budget` positions, of samples of like length, without end."""
    while True:
        order = list(samples)
        r.shuffle(order)
        for begin in range(0, len(order), _POOL):
            yield from map(batch_of, of_like_length(order[begin : begin + _POOL], r, budget))


def tuning(rate: float, minutes: float, steps: int | None) -> Schedule:
    """Return the schedule of an adapter or a draft, which begin with trained weights."""
    return Schedule(
        steps=steps,
        minutes=minutes,
        rate=rate,
        warmup=30,
        lowest=0.02,
        betas=(0.9, 0.98),
        epsilon=1e-8,
        averaged=True,
    )


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One training run."""

    base: Annotated[Path, option("Checkpoint of the Llama model.", kind="DIR")]
    samples: Annotated[Path, option("What `adapter-samples` wrote.", kind="FILE")]
    out: Annotated[Path, option("Where `adapter` is written, in PEFT's layout.", kind="DIR")]
    begin: Annotated[Path | None, option("Adapter whose weights it begins with.", kind="DIR")] = (
        None
    )
    minutes: Annotated[float, option("Length of the schedule.", default="60")] = 60.0
    steps: Annotated[int | None, option("Its length in steps, instead.", low=1)] = None
    rate: Annotated[float, option("Highest learning rate.", default="0.0006")] = 6e-4
    positions: Annotated[int, option("Tokens of a step at most.", default="1200", low=1)] = 1200
    seed: Annotated[int, option("Of the samples' order.", default="1", low=0)] = 1


def adapter(settings: Settings) -> None:
    """Train an adapter. A stopped run goes on from its saved state, also with other samples."""
    torch.set_num_threads(1)
    schedule = tuning(settings.rate, settings.minutes, settings.steps)
    run(partial(_Training, settings), schedule, settings.out / "adapter")


class _Training:
    """An adapter and its endless batches."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        tokenizer = AutoTokenizer.from_pretrained(settings.base)
        with settings.samples.open(encoding="utf-8") as lines:
            rows = (encoded(tokenizer, Reading(*json.loads(line))) for line in lines)
            self._samples = [row for row in rows if row]
        self._adapter = Adapter(Llama.read(settings.base), settings.begin)
        self.parameters = self._adapter.parameters
        self._batches: Iterator[Batch] | None = None

    def losses(self, step: int, number: int, progress: float) -> Losses:
        if self._batches is None:
            r = Random(f"{self._settings.seed}/{step}")
            self._batches = batches(self._samples, r, self._settings.positions)
        batch = next(self._batches)
        logits = self._adapter.logits(batch)
        entropies = F.cross_entropy(logits, batch.targets, reduction="none")
        loss = (entropies * batch.weights).sum() / batch.weights.sum()
        return Losses(loss, float(entropies.detach().mean()), batch.tokens.numel())

    def save(self, weights: Sequence[Tensor], directory: Path) -> None:
        self._adapter.export(directory, weights)
