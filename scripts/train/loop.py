"""One training loop: batches, loss, Adam, checkpoints; a stopped run resumes."""

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dragonrt.cli.loading import counting
from dragonrt.errors import TrainingError

_SAVE_EVERY = 300.0  # seconds
_LONGEST_STEP = 30.0  # seconds of one step that count: a machine may sleep
_LARGEST_GRADIENT = 1.0
_WARMUP = 30  # steps
_LOWEST = 0.02  # the last rate, as a share of the highest
_BETAS, _EPSILON = (0.9, 0.98), 1e-8


class Losses(NamedTuple):
    """The loss of a batch, with its gradient; what is logged beside it."""

    total: Tensor
    answers: float  # cross entropy of the answers' tokens
    tokens: int


class Task(Protocol):
    """What is trained."""

    @property
    def parameters(self) -> Sequence[Tensor]:
        """Return the tensors that are trained, float32."""

    def losses(self, step: int, progress: float) -> Losses:
        """Make a batch and return its losses."""

    def save(self, weights: Sequence[Tensor], directory: Path) -> None:
        """Write the model with these values of its parameters."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast is learned. It ends after `steps`, or `minutes` if there are none."""

    steps: int | None
    minutes: float
    rate: float  # the highest

    def progress(self, steps: float, seconds: float) -> float:
        """Return the part of the schedule that is done, from 0 to 1."""
        return min(1.0, steps / self.steps if self.steps else seconds / (60 * self.minutes))

    def rate_at(self, steps: int, progress: float) -> float:
        """Return the rate of a linear warm-up and half a cosine."""
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        falling = _LOWEST + (1 - _LOWEST) * cosine
        return self.rate * min(1.0, (steps + 1) / _WARMUP) * falling


@dataclass(slots=True)
class State:
    """What a run resumes from: flat float32 tensors over all parameters, and counters.

    `average` is a running mean of the weights. `counters` float64 [4]: steps since the beginning,
    steps and seconds of the schedule, tokens since the beginning.
    """

    weights: Tensor
    mean: Tensor
    variance: Tensor
    average: Tensor
    counters: Tensor

    @classmethod
    def of(cls, parameters: Iterable[Tensor]) -> "State":
        """Return a fresh state with these weights."""
        weights = torch.cat([p.detach().reshape(-1) for p in parameters])
        mean, variance = torch.zeros_like(weights), torch.zeros_like(weights)
        return cls(weights, mean, variance, weights.clone(), torch.zeros(4, dtype=torch.float64))

    def update(self, gradient: Tensor, rate: float) -> None:
        """Make one step of Adam; the counters are the caller's."""
        n = int(self.counters[0]) + 1
        self.mean.mul_(_BETAS[0]).add_(gradient, alpha=1 - _BETAS[0])
        self.variance.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
        scale = (self.variance / (1 - _BETAS[1] ** n)).sqrt_().add_(_EPSILON)
        self.weights.addcdiv_(self.mean / (1 - _BETAS[0] ** n), scale, value=-rate)
        self.average.lerp_(self.weights, 1 - min(0.99, (1 + n) / (10 + n)))

    def save(self, path: Path) -> None:
        """Write it, at once or not at all."""
        unfinished = path.with_name(path.name + ".unfinished")
        save_file({name: getattr(self, name) for name in self.__slots__}, unfinished)
        unfinished.replace(path)

    def load(self, path: Path) -> None:
        """Read the saved state of a run. Raises TrainingError if it is of another model."""
        stored = load_file(path)
        for name in self.__slots__:
            if name not in stored or stored[name].shape != getattr(self, name).shape:
                raise TrainingError(f"{path} is the state of another model: choose another --out")
            getattr(self, name).copy_(stored[name])


def run(make: Callable[[], Task], schedule: Schedule, directory: Path) -> None:
    """Train what `make` makes, on one thread, and save it in the directory.

    Beside it stand `*.state.safetensors`, from which a run resumes, and `*.log.jsonl` with a line
    for every step.
    """
    torch.set_num_threads(1)
    directory.parent.mkdir(parents=True, exist_ok=True)
    saved, log = (
        directory.with_name(f"{directory.name}.{ending}")
        for ending in ("state.safetensors", "log.jsonl")
    )
    task = make()
    parameters = task.parameters
    state = State.of(parameters)
    if saved.exists():
        state.load(saved)
    gradient = torch.zeros_like(state.weights)
    for p, weights, part in zip(
        parameters, _views(state.weights, parameters), _views(gradient, parameters), strict=True
    ):
        p.data, p.grad = weights, part
    saved_at = time.monotonic()
    with counting("training") as show:
        while (done := schedule.progress(*state.counters[1:3].tolist())) < 1:
            begun, steps = time.monotonic(), int(state.counters[0])
            losses = task.losses(steps, done)
            losses.total.backward()  # type: ignore[no-untyped-call]
            norm = float(gradient.norm())
            rate = schedule.rate_at(int(state.counters[1]), done)
            if math.isfinite(norm):
                gradient *= min(1.0, _LARGEST_GRADIENT / (norm + 1e-6))
                state.update(gradient, rate)
            gradient.zero_()
            seconds = min(time.monotonic() - begun, _LONGEST_STEP)
            state.counters += torch.tensor([1, 1, seconds, losses.tokens], dtype=torch.float64)
            _, _, seconds, tokens = state.counters.tolist()
            line = {
                "step": steps + 1,
                "seconds": round(seconds, 1),
                "tokens": int(tokens),
                "loss": round(losses.total.item(), 4),
                "answer_loss": round(losses.answers, 4),
                "norm": round(norm, 3),
                "rate": rate,
            }
            with log.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(line) + "\n")
            done = schedule.progress(*state.counters[1:3].tolist())
            show(round(1000 * done), 1000, f"step {line['step']}, loss {line['loss']}")
            if done >= 1 or time.monotonic() - saved_at > _SAVE_EVERY:
                state.save(saved)
                task.save(_views(state.average, parameters), directory)
                saved_at = time.monotonic()


def _views(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    parts = torch.split(flat, [p.numel() for p in parameters])
    return [part.view(p.shape) for part, p in zip(parts, parameters, strict=True)]
