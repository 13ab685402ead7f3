"""Train a LoRA adapter of a Llama model for answers from documents, in pieces that resume.

python -m scripts.train.models.adapter BASE SAMPLES.jsonl OUT --minutes 90 [--begin ADAPTER]

BASE is a checkpoint directory, SAMPLES what `adapter_samples` wrote; OUT gets `state.safetensors`,
`log.jsonl` and, as often as `--export` says, the adapter in PEFT's layout. The same command goes on
where an earlier one was stopped; another file of samples may follow within the same schedule.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer

from .adapter_model import Adapter, Llama
from .adapter_rows import Encoded, Encoder, read_samples

_BETAS = (0.9, 0.98)
_EPSILON = 1e-8
_WARMUP = 30  # steps
_LEAST_RATE = 0.02  # of the full rate, at the schedule's end
_MEAN_DECAY = 0.99  # of the running mean of the weights, a step
_LONGEST_NORM = 1.0  # of the gradient
_FIRST_WEIGHT = 2.0  # of an answer's first token, which decides whether it is a refusal
_MASKED = -30000.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of whole samples: R rows of at most T tokens, S positions in the loss."""

    tokens: Tensor  # int64 [R, T]
    positions: Tensor  # int64 [R, T]
    bias: Tensor  # bfloat16 [R, 1, T, T]
    selected: Tensor  # int64 [S], into the flattened positions: the token before each target
    targets: Tensor  # int64 [S]
    weights: Tensor  # float32 [S]


def batch_of(samples: list[Encoded]) -> Batch:
    """Pad samples to one length; a branch sees its document and itself, not its siblings."""
    length = max(len(s.tokens) for s in samples)
    tokens = torch.zeros(len(samples), length, dtype=torch.long)
    positions, branches = torch.zeros_like(tokens), torch.full_like(tokens, -1)
    selected: list[int] = []
    targets: list[int] = []
    weights: list[float] = []
    for i, s in enumerate(samples):
        n = len(s.tokens)
        tokens[i, :n] = torch.tensor(s.tokens)
        positions[i, :n] = torch.tensor(s.positions)
        branches[i, :n] = torch.tensor(s.branches)
        for at, target, first in s.targets:
            selected.append(i * length + at)
            targets.append(target)
            weights.append(_FIRST_WEIGHT if first else 1.0)
    mine, theirs = branches[:, :, None], branches[:, None, :]
    visible = ((theirs == 0) | (mine == theirs)) & torch.ones(length, length).tril().bool()
    bias = torch.zeros(len(samples), 1, length, length, dtype=torch.bfloat16)
    bias.masked_fill_(~visible[:, None], _MASKED)
    return Batch(
        tokens,
        positions,
        bias,
        torch.tensor(selected),
        torch.tensor(targets),
        torch.tensor(weights),
    )


def batches(samples: list[Encoded], r: Random, budget: int) -> Iterator[Batch]:
    """Micro-batches of at most `budget` positions, of samples of like length, without end."""
    while True:
        order = list(samples)
        r.shuffle(order)
        for begin in range(0, len(order), 96):
            pool = sorted(order[begin : begin + 96], key=lambda s: len(s.tokens))
            groups: list[list[Encoded]] = [[]]
            for s in pool:
                if groups[-1] and (len(groups[-1]) + 1) * len(s.tokens) > budget:
                    groups.append([])
                groups[-1].append(s)
            r.shuffle(groups)
            yield from (batch_of(group) for group in groups)


class Training:
    """Weights, Adam's moments, running mean and counters of a run, and their file."""

    def __init__(self, adapter: Adapter, path: Path) -> None:
        self._path = path
        self.adapter = adapter
        self._mean = [torch.zeros_like(p) for p in adapter.parameters]
        self._variance = [torch.zeros_like(p) for p in adapter.parameters]
        self.average = [p.detach().clone() for p in adapter.parameters]
        # steps, seconds, positions read, questions
        self.counters = torch.zeros(4, dtype=torch.float64)
        if path.exists():
            self._load()

    def step(self, rate: float) -> float:
        """Update the weights by Adam and clear the gradients; return the gradient's norm."""
        n = int(self.counters[0]) + 1
        gradients = [p.grad if p.grad is not None else p * 0 for p in self.adapter.parameters]
        norm = float(torch.stack([g.square().sum() for g in gradients]).sum().sqrt())
        scale = min(1.0, _LONGEST_NORM / (norm + 1e-6))
        decay = min(_MEAN_DECAY, (1 + n) / (10 + n))
        with torch.no_grad():
            for p, g, m, v, a in zip(
                self.adapter.parameters,
                gradients,
                self._mean,
                self._variance,
                self.average,
                strict=True,
            ):
                g.mul_(scale)
                m.mul_(_BETAS[0]).add_(g, alpha=1 - _BETAS[0])
                v.mul_(_BETAS[1]).addcmul_(g, g, value=1 - _BETAS[1])
                root = (v / (1 - _BETAS[1] ** n)).sqrt_().add_(_EPSILON)
                p.addcdiv_(m / (1 - _BETAS[0] ** n), root, value=-rate)
                a.lerp_(p, 1 - decay)
                p.grad = None
        self.counters[0] = n
        return norm

    def save(self) -> None:
        unfinished = self._path.with_name(self._path.name + ".unfinished")
        save_file(self._tensors(), unfinished)
        unfinished.replace(self._path)

    def _load(self) -> None:
        stored = load_file(self._path)
        with torch.no_grad():
            for name, tensor in self._tensors().items():
                tensor.copy_(stored[name])

    def _tensors(self) -> dict[str, Tensor]:
        found = {"counters": self.counters}
        for i, p in enumerate(self.adapter.parameters):
            found |= {f"weight.{i}": p.detach(), f"mean.{i}": self._mean[i]}
            found |= {f"variance.{i}": self._variance[i], f"average.{i}": self.average[i]}
        return found


@dataclass(frozen=True, slots=True)
class Settings:
    """A run: the schedule has a number of minutes, or of steps where `steps` is given."""

    base: Path
    samples: Path
    out: Path
    begin: Path | None = None
    minutes: float = 60
    steps: int | None = None
    piece: float = math.inf  # minutes of this call
    rate: float = 6e-4
    positions: int = 1200
    export: float = 5  # minutes
    seed: int = 1

    def share(self, counters: Tensor) -> float:
        """How much of the schedule is done, from 0 to 1."""
        if self.steps is not None:
            return float(counters[0]) / self.steps
        return float(counters[1]) / (60 * self.minutes)


def rate_at(step: int, share: float, full: float) -> float:
    """The learning rate: a linear warm-up, then half a cosine over the schedule."""
    falling = _LEAST_RATE + (1 - _LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    return full * min(1.0, (step + 1) / _WARMUP) * falling


def train(settings: Settings) -> None:
    """Train until the schedule, or this piece of it, is over; then save and export."""
    settings.out.mkdir(parents=True, exist_ok=True)
    encoder = Encoder(AutoTokenizer.from_pretrained(settings.base))
    samples = [e for s in read_samples(settings.samples) if (e := encoder.encoded(s))]
    adapter = Adapter(Llama.read(settings.base), Random(0), settings.begin)
    training = Training(adapter, settings.out / "state.safetensors")
    counters = training.counters
    made = batches(samples, Random(f"{settings.seed}/{int(counters[0])}"), settings.positions)
    begin = last = exported = time.monotonic()
    with (settings.out / "log.jsonl").open("a", encoding="utf-8") as log:
        while settings.share(counters) < 1 and last - begin < settings.piece * 60:
            batch = next(made)
            entropies = F.cross_entropy(
                adapter.model.logits(batch, adapter), batch.targets, reduction="none"
            )
            loss = (entropies * batch.weights).sum() / batch.weights.sum()
            loss.backward()  # type: ignore[no-untyped-call]
            norm = training.step(rate_at(int(counters[0]), settings.share(counters), settings.rate))
            now = time.monotonic()
            counters[1:] += torch.tensor(
                [now - last, batch.tokens.numel(), int((batch.weights > 1).sum())]
            )
            line = {
                "step": int(counters[0]),
                "minutes": round(float(counters[1]) / 60, 2),
                "positions": int(counters[2]),
                "questions": int(counters[3]),
                "loss": round(float(loss.detach()), 4),
                "norm": round(norm, 3),
            }
            log.write(json.dumps(line) + "\n")
            log.flush()
            last = now
            if now - exported > settings.export * 60:
                training.save()
                adapter.export(settings.out / "adapter", training.average)
                exported = now
    training.save()
    adapter.export(settings.out / "adapter", training.average)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a LoRA adapter on rendered samples.")
    parser.add_argument("base", type=Path)
    parser.add_argument("samples", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--begin", type=Path, help="an adapter to go on from")
    parser.add_argument("--minutes", type=float, default=60, help="of the whole schedule")
    parser.add_argument("--piece", type=float, default=math.inf, help="minutes of this call")
    parser.add_argument("--rate", type=float, default=6e-4)
    parser.add_argument("--positions", type=int, default=1200, help="of a step")
    parser.add_argument("--seed", type=int, default=1)
    torch.set_num_threads(1)
    train(Settings(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
