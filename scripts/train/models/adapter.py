"""Train a LoRA adapter of a Llama model on the likelihood of mixtures, in the chat prompt."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

import torch
from cyclopts import Parameter
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from dragonrt.cli.options import option
from scripts.train.loop import Losses, Schedule, run

from .adapter_model import Adapter, Llama
from .batches import Batch, padded
from .sample import UNKNOWN, Reading

SYSTEM = "You answer questions from the given document in a few words."
_LONGEST = 640  # tokens of a row
_POOL = 96  # readings of which those of like length are put into one batch
_FIRST_WEIGHT = 2.0  # of an answer's first token, which decides whether it is a refusal
_TEMPERATURES = (0.1, 0.15, 0.2, 0.3)  # of the relevances; one of them for each batch
_FLAT = 0.1  # of what a row loses that is sure of a wrong token
_DOUBT, _SUREST = 1.0, 1 - 1e-6  # as answers are decoded: see `dragonrt.backends.mixture`


@dataclass(frozen=True, slots=True)
class Encoded:
    """One row; the document's tokens are of branch 0.

    A target is the position before it, its token, and whether it is an answer's first.
    """

    tokens: list[int]
    positions: list[int]
    branches: list[int]
    targets: list[tuple[int, int, bool]]


@dataclass(frozen=True, slots=True)
class Rows:
    """A reading's rows, one for each document; their targets are the same tokens.

    `scores` [questions][documents] are cosines.
    """

    rows: list[Encoded]
    scores: list[list[float]]

    @property
    def length(self) -> int:
        """Return the tokens of the longest row."""
        return max(len(row.tokens) for row in self.rows)


def encoded(tokenizer: PreTrainedTokenizerBase, reading: Reading) -> Rows | None:
    """Render a reading in the chat prompt without what does not fit; None if nothing is left."""

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False).input_ids)

    opening = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
    documents = [ids(f"{opening}{document}") for document in reading.documents]
    room = _LONGEST - max(map(len, documents))
    asked: list[tuple[list[int], list[int]]] = []
    for branch in reading.branches:
        prompt = ""
        for i, (question, answer) in enumerate(branch.turns):
            before = "<|im_end|>\n<|im_start|>user\n" if i else "\n\n"
            prompt += f"{before}Question: {question}\nGive a short answer.<|im_end|>\n"
            prompt += f"<|im_start|>assistant\n{answer}"
        asked.append((ids(prompt.removesuffix(answer)), ids(f"{answer}<|im_end|>")))
        room -= len(asked[-1][0]) + len(asked[-1][1]) - 1
        if room < 0:
            asked.pop()
            break
    scores = [branch.scores for branch in reading.branches[: len(asked)]]
    return Rows([_row(each, asked) for each in documents], scores) if asked else None


def _row(document: list[int], asked: list[tuple[list[int], list[int]]]) -> Encoded:
    tokens, positions = list(document), list(range(len(document)))
    branches, targets = [0] * len(document), list[tuple[int, int, bool]]()
    for number, (prompt, answer) in enumerate(asked, 1):
        at = len(tokens) + len(prompt) - 1
        targets += [(at + j, token, j == 0) for j, token in enumerate(answer)]
        own = prompt + answer[:-1]
        tokens += own
        positions += range(len(document), len(document) + len(own))
        branches += [number] * len(own)
    return Encoded(tokens, positions, branches, targets)


def batch_of(readings: Sequence[Rows]) -> Batch:
    """Pad the rows of readings to one length; their targets follow each other."""
    rows = [row for each in readings for row in each.rows]
    tokens, positions, bias = padded(rows)
    length = tokens.shape[1]
    targets = [(i * length + at, *rest) for i, s in enumerate(rows) for at, *rest in s.targets]
    selected, wanted, _ = (torch.tensor(column) for column in zip(*targets, strict=True))
    return Batch(tokens, bias, positions, selected, wanted)


def mixture_losses(
    readings: Sequence[Rows], batch: Batch, logits: Tensor, temperature: float, refusal: int
) -> Tensor:
    """Return -log sum_i w_i p(y_t | document i, y before t) of every target (SPEC 5).

    The weights are those of decoding: w = softmax of cosine / temperature + log(1 - P(refusal)),
    with the probability of the refusal's first token after the question. After an answer's first
    token a row that is sure of another one than y_t loses, too: -log(1 - its probability), times
    _FLAT. So a document that does not know the rest of an answer leaves it to the others.

    Args:
        readings: of which the batch was made.
        logits: float32 [S, V], of the batch's selected positions.
        refusal: that first token.

    Returns:
        float32: the targets of each reading in turn, those of its rows joined.
    """
    logs = torch.log_softmax(logits, -1)
    said = logs.gather(1, batch.targets[:, None])[:, 0]
    refused = logs[:, refusal].exp().clamp(max=_SUREST)
    others = logs.scatter(1, batch.targets[:, None], -torch.inf).amax(1)
    sure = -torch.log1p(-others.exp().clamp(max=_SUREST))
    found, at = [], 0
    for each in readings:
        count = len(each.rows) * len(each.rows[0].targets)
        here, doubt, wrong = (
            x[at : at + count].view(len(each.rows), -1) for x in (said, refused, sure)
        )
        first = torch.tensor([first for *_, first in each.rows[0].targets])
        relevances = torch.tensor(each.scores).T / temperature
        weights = torch.log_softmax(relevances + _DOUBT * torch.log1p(-doubt[:, first]), 0)
        likelihood = torch.logsumexp(here + weights[:, first.cumsum(0) - 1], 0)
        found.append(likelihood - _FLAT * wrong.mean(0) * ~first)
        at += count
    return -torch.cat(found)


def batches(readings: Sequence[Rows], r: Random, budget: int) -> Iterator[list[Rows]]:
    """Yield readings of like length of at most `budget` positions, without end."""
    while True:
        order = list(readings)
        r.shuffle(order)
        for begin in range(0, len(order), _POOL):
            groups: list[list[Rows]] = [[]]
            for each in sorted(order[begin : begin + _POOL], key=lambda each: each.length):
                rows = sum(len(other.rows) for other in [*groups[-1], each])
                if groups[-1] and rows * each.length > budget:
                    groups.append([])
                groups[-1].append(each)
            r.shuffle(groups)
            yield from groups


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
    schedule = Schedule(settings.steps, settings.minutes, settings.rate)
    run(partial(_Training, settings), schedule, settings.out / "adapter")


class _Training:
    """An adapter and its endless batches."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        tokenizer = AutoTokenizer.from_pretrained(settings.base)
        with settings.samples.open(encoding="utf-8") as lines:
            rows = (encoded(tokenizer, Reading.read(line)) for line in lines)
            self._samples = [row for row in rows if row]
        self._refusal = tokenizer(UNKNOWN, add_special_tokens=False).input_ids[0]
        self._adapter = Adapter(Llama.read(settings.base), settings.begin)
        self.parameters = self._adapter.parameters
        self._batches: Iterator[list[Rows]] | None = None

    def losses(self, step: int, progress: float) -> Losses:
        r = Random(f"{self._settings.seed}/{step}")
        if self._batches is None:
            self._batches = batches(self._samples, r, self._settings.positions)
        readings = next(self._batches)
        batch = batch_of(readings)
        logits = self._adapter.logits(batch)
        temperature = r.choice(_TEMPERATURES)
        losses = mixture_losses(readings, batch, logits, temperature, self._refusal)
        firsts = [first for each in readings for *_, first in each.rows[0].targets]
        weights = torch.where(torch.tensor(firsts), _FIRST_WEIGHT, 1.0)
        loss = (losses * weights).sum() / weights.sum()
        return Losses(loss, float(losses.detach().mean()), batch.tokens.numel())

    def save(self, weights: Sequence[Tensor], directory: Path) -> None:
        self._adapter.export(directory, weights)
