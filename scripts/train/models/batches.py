"""Packs whole samples into rows of equal length; no sample sees another of its row.

A micro-batch is a pure function of (seed, step, number), so that any process can make any of them
and a resumed run sees what an uninterrupted one would have seen.
"""

from dataclasses import dataclass, field
from random import Random

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from .corpus import Corpus
from .mixture import sample
from .prose import continuation
from .sample import Role, Sample

# The chance of a position to be in the loss: random names in documents are mostly noise.
_LOSS_CHANCE: dict[Role, float] = {
    "document": 0.30, "passage": 0.7, "question": 0.30, "answer": 4.0, "text": 1.0, "end": 0.3,
}  # fmt: skip
_ANSWER_WEIGHT = 1.5
_LOSS_SHARE = 0.60  # of the positions: the output layer is most of a tiny model's work
_MISSES = 8  # samples in a row that fit nowhere before a batch counts as full
_MASKED = -30000.0
LONG_ROW = 512
ROW = 256


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of R rows of T tokens; S positions of the R*T are in the loss."""

    tokens: Tensor  # int64 [R, T]
    bias: Tensor  # bfloat16 [R, 1, T, T], added to the attention scores
    positions: Tensor  # int64 [R, T], restarting with each sample
    selected: Tensor  # int64 [S], indices into the flattened positions
    targets: Tensor  # int64 [S]
    weights: Tensor  # float32 [S]
    is_answer: Tensor  # bool [S]

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(getattr(self, name).to(device) for name in self.__slots__))


@dataclass(slots=True)
class _Row:
    tokens: list[int] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    def append(self, tokens: list[int], roles: list[Role], room: int) -> None:
        self.starts.append(len(self.tokens))
        self.tokens += tokens[:room]
        self.roles += roles[:room]


class Batches:
    """The micro-batches of a training run."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, corpus: Corpus, seed: int) -> None:
        self._tokenizer = tokenizer
        self._corpus = corpus
        self._seed = seed

    def make(self, step: int, number: int, rows: int, length: int) -> Batch:
        """The micro-batch `number` of a step: `rows` rows of `length` tokens."""
        r = Random(f"{self._seed}/{step}/{number}")
        return _batch(self._packed(r, rows, length + 1), length, r)

    def _packed(self, r: Random, rows: int, length: int) -> list[_Row]:
        packed = [_Row() for _ in range(rows)]
        misses = 0
        while misses < _MISSES:
            drawn = sample(r, self._corpus, long=length > LONG_ROW)
            tokens, roles = self._encode(r, drawn)
            tokens, roles = tokens[:length], roles[:length]
            fitting = [row for row in packed if len(row.tokens) + len(tokens) <= length]
            if fitting:
                r.choice(fitting).append(tokens, roles, length)
            else:
                misses += 1
        for row in packed:
            while len(row.tokens) < length:
                tokens, roles = self._encode(r, continuation(r, self._corpus))
                row.append(tokens, roles, length - len(row.tokens))
        return packed

    def _encode(self, r: Random, drawn: Sample) -> tuple[list[int], list[Role]]:
        end = self._tokenizer.eos_token_id
        tokens: list[int] = []
        roles: list[Role] = []
        if r.random() < 0.5:  # a beginning mark is optional in a prompt
            tokens.append(end)
            roles.append("end")
        for text, role in drawn:
            encoded = self._tokenizer.encode(text, add_special_tokens=False)
            tokens += encoded
            roles += [role] * len(encoded)
        return [*tokens, end], [*roles, "end"]


def _batch(packed: list[_Row], length: int, r: Random) -> Batch:
    tokens = torch.tensor([row.tokens for row in packed])
    owners = torch.zeros_like(tokens)
    positions = torch.zeros_like(tokens)
    for i, row in enumerate(packed):
        ends = [*row.starts[1:], length + 1]
        for sample_number, (start, end) in enumerate(zip(row.starts, ends, strict=True)):
            owners[i, start:end] = sample_number
            positions[i, start:end] = torch.arange(end - start)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)
    owner = owners[:, :-1]
    visible = (owner[:, :, None] == owner[:, None, :]) & torch.ones(length, length).tril().bool()
    bias = torch.zeros(len(packed), 1, length, length, dtype=torch.bfloat16)
    bias.masked_fill_(~visible[:, None], _MASKED)
    roles = [role for row in packed for role in row.roles[1:]]
    within = (owner == owners[:, 1:]).reshape(-1)
    chance = torch.tensor([_LOSS_CHANCE[role] for role in roles]) * within + 1e-6
    generator = torch.Generator().manual_seed(r.randrange(2**31))
    # Weighted sampling without replacement: the largest u^(1/w).
    keys = torch.rand(len(roles), generator=generator).log() / chance
    selected = torch.topk(keys, int(_LOSS_SHARE * len(roles))).indices
    is_answer = torch.tensor([role == "answer" for role in roles])[selected]
    weights = torch.where(is_answer, _ANSWER_WEIGHT, 1.0) * within[selected]
    return Batch(
        inputs,
        bias,
        positions[:, :-1].contiguous(),
        selected,
        targets[selected],
        weights,
        is_answer,
    )
