"""One training loop: micro-batches, loss, AdamW, checkpoints; a stopped run resumes.

On a CPU, processes of one thread share the micro-batches of a step and the update: one process of
two threads had a twelfth of the tokens/s as soon as anything else used a core.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.multiprocessing import get_context
from torch.multiprocessing.spawn import spawn

from dragonrt.cli.loading import counting
from dragonrt.errors import TrainingError

_SAVE_EVERY = 300.0  # seconds
_LONGEST_STEP = 30.0  # seconds of one step that count: a machine may sleep
_LARGEST_GRADIENT = 1.0


class Losses(NamedTuple):
    """The loss of a micro-batch, with its gradient; what is logged beside it."""

    total: Tensor
    answers: float  # cross entropy of the answers' tokens
    tokens: int


class Task(Protocol):
    """What is trained. Micro-batches are numbered within a step."""

    @property
    def parameters(self) -> Sequence[Tensor]:
        """Return the tensors that are trained, float32."""

    def losses(self, step: int, number: int, progress: float) -> Losses:
        """Make a micro-batch and return its losses."""

    def save(self, weights: Sequence[Tensor], directory: Path) -> None:
        """Write the model with these values of its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long and how fast is learned. It ends after `steps`, or `minutes` if there are none."""

    steps: int | None = None
    minutes: float = 60.0
    rate: float  # the highest, after `warmup` steps
    warmup: int
    lowest: float  # the last rate, as a share of the highest
    betas: tuple[float, float]
    epsilon: float
    decay: float = 0.0  # of weights of two dimensions
    averaged: bool = False  # a running mean of the weights is saved, not the last ones
    micro_batches: int = 1
    workers: int = 1
    extend: bool = False  # a new schedule, from the saved weights

    def progress(self, steps: float, seconds: float) -> float:
        """Return the part of the schedule that is done, from 0 to 1."""
        return min(1.0, steps / self.steps if self.steps else seconds / (60 * self.minutes))

    def rate_at(self, steps: int, progress: float) -> float:
        """Return the rate of a linear warm-up and half a cosine."""
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        falling = self.lowest + (1 - self.lowest) * cosine
        return self.rate * min(1.0, (steps + 1) / self.warmup) * falling


@dataclass(slots=True)
class State:
    """What a run resumes from: flat float32 tensors over all parameters, and counters.

    `counters` float64 [4]: steps since the beginning, steps and seconds of the current schedule,
    tokens since the beginning.
    """

    weights: Tensor
    mean: Tensor
    variance: Tensor
    average: Tensor
    counters: Tensor

    @classmethod
    def of(cls, parameters: Iterable[Tensor], averaged: bool) -> "State":
        """Return a fresh state with these weights."""
        weights = torch.cat([p.detach().reshape(-1) for p in parameters])
        mean, variance = torch.zeros_like(weights), torch.zeros_like(weights)
        average = weights.clone() if averaged else weights[:0].clone()
        return cls(weights, mean, variance, average, torch.zeros(4, dtype=torch.float64))

    def update(
        self, part: slice, gradient: Tensor, rate: float, decays: Tensor, s: Schedule
    ) -> None:
        """Make one step of AdamW on a part of the weights; the counters are the caller's."""
        n = int(self.counters[0]) + 1
        mean, variance, weights = self.mean[part], self.variance[part], self.weights[part]
        mean.mul_(s.betas[0]).add_(gradient, alpha=1 - s.betas[0])
        variance.mul_(s.betas[1]).addcmul_(gradient, gradient, value=1 - s.betas[1])
        scale = (variance / (1 - s.betas[1] ** n)).sqrt_().add_(s.epsilon)
        weights.mul_(1 - rate * decays)
        weights.addcdiv_(mean / (1 - s.betas[0] ** n), scale, value=-rate)
        if s.averaged:
            self.average[part].lerp_(weights, 1 - min(0.99, (1 + n) / (10 + n)))

    def save(self, path: Path) -> None:
        """Write it, at once or not at all."""
        unfinished = path.with_name(path.name + ".unfinished")
        save_file({name: getattr(self, name).cpu() for name in self.__slots__}, unfinished)
        unfinished.replace(path)

    def load(self, path: Path) -> None:
        """Read the saved state of a run. Raises TrainingError if it is of another model."""
        stored = load_file(path)
        for name in self.__slots__:
            if name not in stored or stored[name].shape != getattr(self, name).shape:
                raise TrainingError(f"{path} is the state of another model: choose another --out")
            getattr(self, name).copy_(stored[name])


@dataclass(frozen=True, slots=True)
class _Run:
    """What the workers of a run share."""

    make: Callable[[], Task]
    schedule: Schedule
    directory: Path
    state: State
    gradients: Tensor  # float32 [workers, parameters]
    norms: Tensor  # float32 [workers], squared
    sums: Tensor  # float64 [workers, 4]: loss, loss of answers, micro-batches, tokens
    barrier: Barrier

    def beside(self, ending: str) -> Path:
        return self.directory.with_name(f"{self.directory.name}.{ending}")


def run(make: Callable[[], Task], schedule: Schedule, directory: Path) -> Path:
    """Train what `make` makes in each worker; return the directory that it is saved in.

    Beside it stand `*.state.safetensors`, from which a run resumes, and `*.log.jsonl` with a line
    for every step.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    task = make()
    state = State.of(task.parameters, schedule.averaged)
    workers, size, context = schedule.workers, state.weights.numel(), get_context("spawn")
    gradients = torch.zeros(workers, size, device=state.weights.device)
    norms, sums = torch.zeros(workers), torch.zeros(workers, 4, dtype=torch.float64)
    shared = _Run(
        make, schedule, directory, state, gradients, norms, sums, context.Barrier(workers)
    )
    saved = shared.beside("state.safetensors")
    if saved.exists():
        state.load(saved)
        if schedule.extend:
            state.counters[1:3] = 0
    if workers == 1:
        _work(0, shared, task)
        return directory
    del task
    for tensor in (gradients, norms, sums, *(getattr(state, name) for name in State.__slots__)):
        tensor.share_memory_()
    spawn(_work, args=(shared,), nprocs=workers)  # type: ignore[no-untyped-call]
    return directory


def _views(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    parts = torch.split(flat, [p.numel() for p in parameters])
    return [part.view(p.shape) for part, p in zip(parts, parameters, strict=True)]


def _work(rank: int, run: _Run, task: Task | None = None) -> None:
    """Compute a share of every step's micro-batches, and update a part of the weights."""
    schedule, state, task = run.schedule, run.state, task or run.make()
    if schedule.workers > 1:
        torch.set_num_threads(1)
    parameters = task.parameters
    gradients = _views(run.gradients[rank], parameters)
    for p, weights, gradient in zip(
        parameters, _views(state.weights, parameters), gradients, strict=True
    ):
        p.data, p.grad = weights, gradient
    size = state.weights.numel()
    part = slice(rank * size // schedule.workers, (rank + 1) * size // schedule.workers)
    decays = torch.cat([torch.full((p.numel(),), float(p.dim() >= 2)) for p in parameters])
    decays = schedule.decay * decays[part].to(state.weights.device)
    saved_at = time.monotonic()
    with nullcontext(lambda *_: None) if rank else counting("training") as show:
        while True:
            begun = time.monotonic()
            steps, scheduled, seconds, _ = state.counters.tolist()
            progress = schedule.progress(scheduled, seconds)
            if progress >= 1:
                return
            sums = run.sums[rank].zero_()
            for number in range(rank, schedule.micro_batches, schedule.workers):
                total, answers, tokens = task.losses(int(steps), number, progress)
                (total / schedule.micro_batches).backward()  # type: ignore[no-untyped-call]
                sums += torch.tensor([total.item(), answers, 1, tokens], dtype=torch.float64)
            run.barrier.wait()
            gradient = run.gradients[:, part].sum(0)
            run.norms[rank] = gradient.square().sum()
            run.barrier.wait()
            norm, rate = float(run.norms.sum()) ** 0.5, schedule.rate_at(int(scheduled), progress)
            if math.isfinite(norm):
                gradient *= min(1.0, _LARGEST_GRADIENT / (norm + 1e-6))
                state.update(part, gradient, rate, decays, schedule)
            run.gradients[rank].zero_()
            run.barrier.wait()
            if rank == 0:
                line = _counted(run, min(time.monotonic() - begun, _LONGEST_STEP), norm, rate)
                done = schedule.progress(*state.counters[1:3].tolist())
                show(round(1000 * done), 1000, f"step {line['step']}, loss {line['loss']}")
                if done >= 1 or time.monotonic() - saved_at > _SAVE_EVERY:
                    state.save(run.beside("state.safetensors"))
                    kept = state.average if schedule.averaged else state.weights
                    task.save(_views(kept, parameters), run.directory)
                    saved_at = time.monotonic()
            run.barrier.wait()


def _counted(run: _Run, seconds: float, norm: float, rate: float) -> dict[str, float]:
    """Count a step and append it to the log."""
    loss, answers, n, tokens = run.sums.sum(0).tolist()
    counters = run.state.counters
    counters += torch.tensor([1, 1, seconds, tokens], dtype=torch.float64)
    line = {
        "step": int(counters[0]),
        "seconds": round(float(counters[2]), 1),
        "tokens": int(counters[3]),
        "loss": round(loss / n, 4),
        "answer_loss": round(answers / n, 4),
        "norm": round(norm, 3),
        "rate": rate,
    }
    with run.beside("log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")
    return line
