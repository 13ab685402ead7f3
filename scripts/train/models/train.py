"""Train a model of the dragon family on samples that are made on the fly."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, cast

import torch
import torch.nn.functional as F  # noqa: N812
from cyclopts import Parameter
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    OPTForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from dragonrt.cli.options import option
from scripts.train.loop import Losses, Schedule, run

from .batches import ROW, Batch, Batches
from .checkpoints import configuration, initialized, save
from .corpus import Corpus

_LONG_SHARE = 0.12  # the last part of the schedule has long rows
_LONG_ROW = 2 * ROW
_NORMALIZER_PENALTY = 1e-4  # keeps the logits' normalizer near one in bfloat16
_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
_WORKERS = (os.cpu_count() or 1) if _DEVICE == "cpu" else 1


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One training run."""

    corpus: Annotated[Path, option("Directory of the corpus.", kind="DIR")]
    out: Annotated[Path, option("Directory of the models, with `tokenizer`.", kind="DIR")]
    minutes: Annotated[float, option("Length of the schedule.", default="60")] = 60.0
    steps: Annotated[int | None, option("Its length in steps, instead.", low=1)] = None
    rows: Annotated[int, option("Rows of 256 tokens in a micro-batch.", default="4", low=1)] = 4
    micro_batches: Annotated[int, option("Micro-batches of a step.", default="6", low=1)] = 6
    rate: Annotated[float, option("Highest learning rate.", default="0.003")] = 3e-3
    warmup: Annotated[int, option("Steps until then.", default="150", low=1)] = 150
    seed: Annotated[int, option("All chance comes from it.", default="1", low=0)] = 1
    teacher: Annotated[Path | None, option("Model that is distilled.", kind="DIR")] = None
    teacher_share: Annotated[float, option("The teacher's share of the loss.", default="0.7")] = 0.7
    begin: Annotated[Path | None, option("Model whose first layers it begins as.", kind="DIR")] = (
        None
    )
    workers: Annotated[int, option("Processes.", default="one per core", low=1)] = _WORKERS
    extend: Annotated[bool, option("Begin a new schedule with the saved weights.")] = False
    compiled: Annotated[bool, option("Compile the model.", default="yes", no=True)] = True


def model(name: Literal["small", "draft"], settings: Settings) -> None:
    """Train a model. A stopped run goes on from its saved state."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(settings.out / "tokenizer")
    train(name, settings, configuration(name, tokenizer))


def train(name: str, settings: Settings, config: PretrainedConfig) -> Path:
    """Train a model of a configuration and return the directory that it is saved in."""
    schedule = Schedule(
        steps=settings.steps,
        minutes=settings.minutes,
        rate=settings.rate,
        warmup=settings.warmup,
        lowest=0.05,
        betas=(0.9, 0.95),
        epsilon=1e-9,
        decay=0.05,
        micro_batches=settings.micro_batches,
        workers=settings.workers,
        extend=settings.extend,
    )
    return run(partial(_Training, settings, config), schedule, settings.out / f"dragon-{name}")


class _Training:
    """A model, its batches and, for a draft model, its teacher."""

    def __init__(self, settings: Settings, config: PretrainedConfig) -> None:
        torch.manual_seed(settings.seed)
        self._settings = settings
        self._tokenizer = PreTrainedTokenizerFast.from_pretrained(settings.out / "tokenizer")
        self._model = initialized(config, _DEVICE, settings.begin).train()
        self.parameters = list(self._model.parameters())
        self._teacher: PreTrainedModel | None = None
        if settings.teacher:
            teacher = AutoModelForCausalLM.from_pretrained(settings.teacher, dtype=torch.bfloat16)
            teacher.to(_DEVICE)  # type: ignore[arg-type]
            self._teacher = teacher.requires_grad_(False).train(False)
        compiled = settings.compiled
        self._loss = torch.compile(self._losses, dynamic=False) if compiled else self._losses
        self._batches = Batches(self._tokenizer, Corpus.read(settings.corpus), settings.seed)

    def losses(self, step: int, number: int, progress: float) -> Losses:
        length = _LONG_ROW if progress > 1 - _LONG_SHARE else ROW
        rows = max(1, self._settings.rows * ROW // length)
        batch = self._batches.make(step, number, rows, length).to(torch.device(_DEVICE))
        loss, entropies = self._loss(batch)
        answers = entropies[batch.is_answer]
        answer = answers.mean().item() if answers.numel() else 0.0
        return Losses(loss, answer, batch.tokens.numel())

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss, and the cross entropies [S] without gradient.

        The teacher's share of the loss is the cross entropy against its distribution, which is the
        Kullback-Leibler divergence up to a constant.
        """
        logits = _logits(self._model, batch)
        normalizer = torch.logsumexp(logits, -1)
        entropies = normalizer - logits.gather(1, batch.targets[:, None]).squeeze(1)
        total = (entropies * batch.weights).sum() / batch.weights.sum()
        total = total + _NORMALIZER_PENALTY * normalizer.square().mean()
        if self._teacher is not None:
            share = self._settings.teacher_share
            with torch.no_grad():
                probabilities = _logits(self._teacher, batch).softmax(-1)
            distilled = normalizer - (probabilities * logits).sum(-1)
            total = (1 - share) * total + share * distilled.mean()
        return total, entropies.detach()

    def save(self, _: object, directory: Path) -> None:
        save(self._model, self._tokenizer, directory)


def _logits(model: PreTrainedModel, batch: Batch) -> Tensor:
    """Return the float32 logits [S, V] of the selected positions only."""
    trunk = model.model.decoder if isinstance(model, OPTForCausalLM) else model.model
    with torch.autocast(batch.tokens.device.type, dtype=torch.bfloat16):
        hidden = trunk(
            input_ids=batch.tokens,
            attention_mask=batch.bias,
            position_ids=batch.positions,
            use_cache=False,
        ).last_hidden_state
        chosen = hidden.reshape(-1, hidden.shape[-1]).index_select(0, batch.selected)
        embeddings = cast(Tensor, model.get_input_embeddings().weight)
        return F.linear(chosen, embeddings).float()
