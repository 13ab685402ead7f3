"""Micro-batches: texts of any lengths, whose branches do not see each other, padded to one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar

import torch
from torch import Tensor

MASKED = -30000.0
DTYPE = torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
"""Of products: bfloat16 needs AVX-512."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of R rows of T tokens; S positions of the R*T are in the loss."""

    tokens: Tensor  # int64 [R, T]
    bias: Tensor  # DTYPE [R, 1, T, T], added to the attention scores
    positions: Tensor  # int64 [R, T]
    selected: Tensor  # int64 [S], indices into the flattened positions
    targets: Tensor  # int64 [S]


class Branched(Protocol):
    """A text of n tokens. All behind them see positions of branch 0; others, their own branch."""

    @property
    def tokens(self) -> list[int]:
        """Return the tokens [n]."""

    @property
    def positions(self) -> list[int]:
        """Return each token's position in its branch's text [n]."""

    @property
    def branches(self) -> list[int]:
        """Return the number of each token's branch [n]."""


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

    A position sees those before it of branch 0 and of its own branch. The bias is DTYPE
    [R, 1, T, T].
    """
    length = max(len(text.tokens) for text in texts)

    def padding(name: str, value: int) -> Tensor:
        lists = [getattr(text, name) for text in texts]
        return torch.tensor([each + [value] * (length - len(each)) for each in lists])

    branches = padding("branches", -1)
    mine, theirs = branches[:, :, None], branches[:, None, :]
    visible = ((theirs == 0) | (mine == theirs)) & torch.ones(length, length).tril().bool()
    bias = torch.zeros(len(texts), 1, length, length, dtype=DTYPE)
    bias.masked_fill_(~visible[:, None], MASKED)
    return padding("tokens", 0), padding("positions", 0), bias
