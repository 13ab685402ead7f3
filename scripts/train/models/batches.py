"""Micro-batches: whole samples packed into rows of equal length; no sample sees another.

A micro-batch is a pure function of (seed, step, number), so that any process can make any of them
and a resumed run sees what an uninterrupted one would have seen.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from .corpus import Corpus
from .mixture import sample
from .prose import continuation
from .sample import Role, Sample

ROW = 256
"""Tokens of a row; of a longer one, samples are chosen differently."""

# The chance of a position to be in the loss: random names in documents are mostly noise.
_LOSS_CHANCE: dict[Role, float] = {
    "document": 0.30, "passage": 0.7, "question": 0.30, "answer": 4.0, "text": 1.0, "end": 0.3,
}  # fmt: skip
_ANSWER_WEIGHT = 1.5
_LOSS_SHARE = 0.60  # of the positions: the output layer is most of a tiny model's work
_MISSES = 8  # samples in a row that fit nowhere before a batch counts as full
MASKED = -30000.0


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
        """Return it on a device."""
        return Batch(*(getattr(self, name).to(device) for name in self.__slots__))


class Branched(Protocol):
    """A text of n tokens. Positions of branch 0 are seen by all behind them, others by their own.

    All three are [n].
    """

    @property
    def tokens(self) -> list[int]: ...
    @property
    def positions(self) -> list[int]: ...
    @property
    def branches(self) -> list[int]: ...


B = TypeVar("B", bound=Branched)


def of_like_length(texts: Iterable[B], r: Random, budget: int) -> list[list[B]]:
    """Group texts of like length, in random order; each group has at most `budget` positions."""
    groups: list[list[B]] = [[]]
    for text in sorted(texts, key=lambda text: len(text.tokens)):
        if groups[-1] and (len(groups[-1]) + 1) * len(text.tokens) > budget:
            groups.append([])
        groups[-1].append(text)
    r.shuffle(groups)
    return groups


def padded(texts: Sequence[Branched]) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens and positions [R, T], and the attention's bias, of texts of any lengths.

    A branch sees branch 0 and itself, not its siblings.
    """
    length = max(len(text.tokens) for text in texts)

    def padding(name: str, value: int) -> Tensor:
        lists = [getattr(text, name) for text in texts]
        return torch.tensor([each + [value] * (length - len(each)) for each in lists])

    branches = padding("branches", -1)
    mine, theirs = branches[:, :, None], branches[:, None, :]
    bias = attention_bias((theirs == 0) | (mine == theirs))
    return padding("tokens", 0), padding("positions", 0), bias


def attention_bias(visible: Tensor) -> Tensor:
    """Return the bias of rows in which each position sees those before it that are visible.

    Bool [R, T, T] to bfloat16 [R, 1, T, T].
    """
    rows, length, _ = visible.shape
    visible = visible & torch.ones(length, length).tril().bool()
    bias = torch.zeros(rows, 1, length, length, dtype=torch.bfloat16)
    return bias.masked_fill_(~visible[:, None], MASKED)


@dataclass(slots=True)
class _Row:
    tokens: list[int] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)  # the number of each token's sample
    positions: list[int] = field(default_factory=list)

    def append(self, tokens: list[int], roles: list[Role], room: int) -> None:
        tokens = tokens[:room]
        owner = self.owners[-1] + 1 if self.owners else 0
        self.tokens += tokens
        self.roles += roles[:room]
        self.owners += [owner] * len(tokens)
        self.positions += range(len(tokens))


@dataclass(frozen=True, slots=True)
class Batches:
    """The micro-batches of a training run."""

    tokenizer: PreTrainedTokenizerFast
    corpus: Corpus
    seed: int

    def make(self, step: int, number: int, rows: int, length: int) -> Batch:
        """Make the micro-batch `number` of a step: `rows` rows of `length` tokens."""
        r = Random(f"{self.seed}/{step}/{number}")
        return _batch(self._packed(r, rows, length + 1), r)

    def _packed(self, r: Random, rows: int, length: int) -> list[_Row]:
        packed = [_Row() for _ in range(rows)]
        misses = 0
        while misses < _MISSES:
            tokens, roles = self._encode(r, sample(r, self.corpus, long=length > 2 * ROW))
            size = min(len(tokens), length)
            fitting = [row for row in packed if len(row.tokens) + size <= length]
            if fitting:
                r.choice(fitting).append(tokens, roles, length)
            else:
                misses += 1
        for row in packed:
            while len(row.tokens) < length:
                tokens, roles = self._encode(r, continuation(r, self.corpus))
                row.append(tokens, roles, length - len(row.tokens))
        return packed

    def _encode(self, r: Random, drawn: Sample) -> tuple[list[int], list[Role]]:
        end = self.tokenizer.eos_token_id
        tokens: list[int] = []
        roles: list[Role] = []
        if r.random() < 0.5:  # a beginning mark is optional in a prompt
            tokens.append(end)
            roles.append("end")
        for text, role in drawn:
            encoded = self.tokenizer.encode(text, add_special_tokens=False)
            tokens += encoded
            roles += [role] * len(encoded)
        return [*tokens, end], [*roles, "end"]


def _batch(packed: list[_Row], r: Random) -> Batch:
    tokens, owners, positions = (
        torch.tensor([getattr(row, name) for row in packed])
        for name in ("tokens", "owners", "positions")
    )
    owner = owners[:, :-1]
    roles = [role for row in packed for role in row.roles[1:]]
    within = (owner == owners[:, 1:]).reshape(-1)
    chance = torch.tensor([_LOSS_CHANCE[role] for role in roles]) * within + 1e-6
    generator = torch.Generator().manual_seed(r.randrange(2**31))
    # Weighted sampling without replacement: the largest u^(1/w).
    keys = torch.rand(len(roles), generator=generator).log() / chance
    selected = torch.topk(keys, int(_LOSS_SHARE * len(roles))).indices
    is_answer = torch.tensor([role == "answer" for role in roles])[selected]
    return Batch(
        tokens[:, :-1].contiguous(),
        attention_bias(owner[:, :, None] == owner[:, None, :]),
        positions[:, :-1].contiguous(),
        selected,
        tokens[:, 1:].reshape(-1)[selected],
        torch.where(is_answer, _ANSWER_WEIGHT, 1.0) * within[selected],
        is_answer,
    )
