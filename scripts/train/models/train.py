r"""Train one model of the family on samples that are made on the fly.

    python -m scripts.train.models.train small CORPUS OUT --minutes 60
    python -m scripts.train.models.train draft CORPUS OUT --steps 2000 --rate 1.2e-3 \
        --begin OUT/dragon-small --teacher OUT/dragon-small

OUT/tokenizer comes from `scripts.train.models.tokenizer`. A stopped run goes on from its saved
state; `--extend` begins a new schedule with the weights of a finished one. On a CPU, processes of
one thread share the micro-batches of a step; a GPU is used by one process.
"""

import argparse
import json
import math
import os
import time
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from pathlib import Path

import torch
from torch import Tensor
from torch.multiprocessing import get_context
from torch.multiprocessing.spawn import spawn
from transformers import (
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from .architectures import configuration, initialized, save
from .batches import LONG_ROW, ROW, Batches
from .corpus import Corpus
from .objective import Loss, objective
from .state import State

_SAVE_EVERY = 300.0  # seconds
_LONGEST_STEP = 30.0  # seconds of one step that count: a machine may sleep
_LONG_SHARE = 0.12  # the last part of the schedule has long rows
_LOWEST_RATE = 0.05  # of the highest
_LARGEST_GRADIENT = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """One training run. It ends after `steps`, or after `minutes` if there are none."""

    name: str
    corpus: Path
    out: Path
    steps: int | None = None
    minutes: float = 60.0
    rows: int = 4  # of 256 tokens in a micro-batch
    micro_batches: int = 6
    rate: float = 3e-3
    warmup: int = 150
    seed: int = 1
    teacher: Path | None = None
    teacher_share: float = 0.7
    device: str = "cpu"
    workers: int = 1
    compiled: bool = False
    extend: bool = False
    begin: Path | None = None

    @property
    def tokens_of_a_step(self) -> int:
        return self.micro_batches * self.rows * ROW

    def progress(self, steps: float, seconds: float) -> float:
        """The part of the schedule that is done, from 0 to 1."""
        done = steps / self.steps if self.steps else seconds / (60 * self.minutes)
        return min(1.0, done)

    def rate_at(self, steps: int, progress: float) -> float:
        """Linear warm-up, then a cosine that ends at a twentieth."""
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        return (
            self.rate
            * min(1.0, (steps + 1) / self.warmup)
            * (_LOWEST_RATE + (1 - _LOWEST_RATE) * cosine)
        )


@dataclass(slots=True)
class _Shared:
    """What the workers of a run have in common."""

    state: State
    gradients: Tensor  # float32 [workers, parameters]
    norms: Tensor  # float32 [workers], squared
    losses: Tensor  # float64 [workers, 3]: sums of loss and of answers' entropy, micro-batches
    ticket: "Synchronized[int]"  # the next micro-batch of the step
    barrier: Barrier


def train(settings: Settings, config: PretrainedConfig) -> Path:
    """Train a model of a configuration and return the directory that it is saved in.

    Beside the directory stand `*.state.safetensors`, from which a run goes on, and `*.log.jsonl`
    with a line for every step.
    """
    torch.manual_seed(settings.seed)
    settings.out.mkdir(parents=True, exist_ok=True)
    state = State.of(initialized(config, settings.device, settings.begin))
    saved = _beside(settings, "state.safetensors")
    if saved.exists():
        state.load(saved)
        if settings.extend:
            state.counters[1:3] = 0
    context = get_context("spawn")
    shared = _Shared(
        state,
        torch.zeros(settings.workers, state.weights.numel(), device=settings.device),
        torch.zeros(settings.workers),
        torch.zeros(settings.workers, 3, dtype=torch.float64),
        context.Value("i", 0),
        context.Barrier(settings.workers),
    )
    if settings.workers == 1:
        _work(0, settings, config, shared)
    else:
        state.share()
        for tensor in (shared.gradients, shared.norms, shared.losses):
            tensor.share_memory_()  # type: ignore[no-untyped-call]
        spawn(_work, args=(settings, config, shared), nprocs=settings.workers)  # type: ignore[no-untyped-call]
    return _beside(settings, "")


def _beside(settings: Settings, ending: str) -> Path:
    name = f"dragon-{settings.name}"
    return settings.out / (f"{name}.{ending}" if ending else name)


def _work(rank: int, settings: Settings, config: PretrainedConfig, shared: _Shared) -> None:
    if settings.workers > 1:
        torch.set_num_threads(1)
    worker = _Worker(rank, settings, config, shared)
    while worker.step():
        pass


class _Worker:
    """One process of a run: computes micro-batches, then updates its part of the parameters."""

    def __init__(
        self, rank: int, settings: Settings, config: PretrainedConfig, shared: _Shared
    ) -> None:
        self._rank, self._settings, self._shared = rank, settings, shared
        self._state = shared.state
        self._device = torch.device(settings.device)
        self._tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(
            settings.out / "tokenizer"
        )
        self._model = initialized(config, settings.device).train()
        self._state.bind(self._model, shared.gradients[rank])
        self._loss = self._objective()
        corpus = Corpus.read(settings.corpus)
        self._batches = Batches(self._tokenizer, corpus, settings.seed)
        size = self._state.weights.numel()
        part = (rank * size // settings.workers, (rank + 1) * size // settings.workers)
        self._part = slice(*part)
        self._saved_at = time.monotonic()

    def _objective(self) -> Loss:
        teacher: PreTrainedModel | None = None
        if self._settings.teacher:
            teacher = AutoModelForCausalLM.from_pretrained(
                self._settings.teacher, dtype=torch.bfloat16
            )
            teacher.to(self._settings.device)  # type: ignore[arg-type]
            teacher.requires_grad_(False)
            teacher.train(False)
        loss = objective(self._model, teacher, self._settings.teacher_share)
        return torch.compile(loss, dynamic=False) if self._settings.compiled else loss

    def step(self) -> bool:
        """One step together with the other workers; False when the schedule is over."""
        begun = time.monotonic()
        updates, scheduled, seconds, _ = self._state.counters.tolist()
        progress = self._settings.progress(scheduled, seconds)
        if progress >= 1:
            return False
        self._compute_gradients(int(updates), LONG_ROW if progress > 1 - _LONG_SHARE else ROW)
        self._shared.barrier.wait()
        gradient = self._shared.gradients[:, self._part].sum(0)
        self._shared.norms[self._rank] = gradient.square().sum()
        self._shared.barrier.wait()
        norm = float(self._shared.norms.sum()) ** 0.5
        rate = self._settings.rate_at(int(scheduled), progress)
        if math.isfinite(norm):
            gradient *= min(1.0, _LARGEST_GRADIENT / (norm + 1e-6))
            self._state.update(self._part, gradient, rate)
        self._shared.barrier.wait()
        self._shared.gradients[self._rank].zero_()
        if self._rank == 0:
            self._finish(time.monotonic() - begun, rate)
        self._shared.barrier.wait()
        return True

    def _compute_gradients(self, step: int, length: int) -> None:
        rows = max(1, self._settings.rows * ROW // length)
        sums = self._shared.losses[self._rank]
        sums.zero_()
        while (number := self._next()) < self._settings.micro_batches:
            batch = self._batches.make(step, number, rows, length).to(self._device)
            loss, entropies = self._loss(batch)
            (loss / self._settings.micro_batches).backward()  # type: ignore[no-untyped-call]
            answers = entropies[batch.is_answer]
            answer = answers.mean().item() if answers.numel() else 0.0
            sums += torch.tensor([loss.item(), answer, 1.0], dtype=torch.float64)

    def _next(self) -> int:
        with self._shared.ticket.get_lock():
            number = self._shared.ticket.value
            self._shared.ticket.value += 1
        return number

    def _finish(self, seconds: float, rate: float) -> None:
        """Count, log and, now and then and at the end, save."""
        self._shared.ticket.value = 0
        counters = self._state.counters
        elapsed = min(seconds, _LONGEST_STEP)
        tokens = self._settings.tokens_of_a_step
        counters += torch.tensor([1, 1, elapsed, tokens], dtype=torch.float64)
        loss, answer, n = self._shared.losses.sum(0).tolist()
        line = {
            "step": int(counters[0]),
            "seconds": round(float(counters[2]), 1),
            "tokens": int(counters[3]),
            "loss": round(loss / n, 4),
            "answer_loss": round(answer / n, 4),
            "rate": rate,
        }
        with _beside(self._settings, "log.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")
        over = self._settings.progress(float(counters[1]), float(counters[2])) >= 1
        if over or time.monotonic() - self._saved_at > _SAVE_EVERY:
            self._state.save(_beside(self._settings, "state.safetensors"))
            save(self._model, self._tokenizer, _beside(self._settings, ""))
            self._saved_at = time.monotonic()


def main() -> None:
    defaults = Settings("small", Path(), Path())
    parser = argparse.ArgumentParser(description="Train one of the dragon-* models.")
    parser.add_argument("name", choices=["small", "draft", "opt"])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path, help="directory of the models; holds tokenizer/")
    parser.add_argument("--minutes", type=float, default=defaults.minutes)
    parser.add_argument("--steps", type=int, help="instead of minutes")
    parser.add_argument("--rows", type=int, default=defaults.rows, help="of 256 tokens")
    parser.add_argument("--micro-batches", type=int, default=defaults.micro_batches)
    parser.add_argument("--rate", type=float, default=defaults.rate, help="highest learning rate")
    parser.add_argument("--warmup", type=int, default=defaults.warmup, help="steps")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--teacher-share", type=float, default=defaults.teacher_share)
    parser.add_argument("--teacher", type=Path, help="directory of the model to distil")
    parser.add_argument("--begin", type=Path, help="a trained model whose weights it begins with")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes on a CPU")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--extend", action="store_true", help="a new schedule, from saved weights")
    args = vars(parser.parse_args())
    if args["device"] == "auto":
        args["device"] = "cuda" if torch.cuda.is_available() else "cpu"
    if args["device"] == "cuda":
        args["workers"] = 1
    settings = Settings(compiled=not args.pop("eager"), **args)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(settings.out / "tokenizer")
    print(train(settings, configuration(settings.name, tokenizer)))


if __name__ == "__main__":
    main()
