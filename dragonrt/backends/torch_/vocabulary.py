"""Both ends of a model: what a token goes in as, and what the tokens' logits are read from.

Often they are the same numbers. Packed for products, they are then held in that form only: the rows
of the tokens that go in are unpacked, a piece at a time, and kept for a while.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dragonrt.backends.torch_.linear import Linear, MakeLinear, packs

PIECE = 16384
"""Outputs per product: between two of them a preemption is noticed."""
# Outputs per product of a layer that tokens are read from, too: unpacking one takes 0.7 ms of a
# hidden size of 1024, and the products 4 % longer than of the largest pieces.
_TIED_PIECE = 2048
_WORTH_SHARING = 64 * 2**20  # bytes; below that a second copy is no matter
_ROWS_KEPT = 4096

Embed = Callable[[Tensor], Tensor]
"""Tokens [n] to [n, hidden]."""


@dataclass(frozen=True, slots=True)
class OutputLayer:
    """The products that give the logits, piece by piece, and their sizes."""

    pieces: Sequence[Callable[[Tensor], Tensor]]
    vocabulary: int
    hidden_size: int
    dtype: torch.dtype
    device: torch.device


class Table:
    """An embedding as it is stored: [vocabulary, hidden]."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows

    def __call__(self, tokens: Tensor) -> Tensor:
        return functional.embedding(tokens, self._rows)


class TiedTable:
    """An embedding whose rows are those of a packed output layer, in pieces of `_TIED_PIECE`."""

    __slots__ = ("_kept", "_pieces")

    def __init__(self, pieces: Sequence[Linear]) -> None:
        self._pieces = pieces
        self._kept: dict[int, Tensor] = {}

    def __call__(self, tokens: Tensor) -> Tensor:
        wanted = tokens.tolist()
        if len(self._kept) > _ROWS_KEPT:
            self._kept.clear()
        missing: dict[int, set[int]] = {}
        for token in wanted:
            if token not in self._kept:
                missing.setdefault(token // _TIED_PIECE, set()).add(token)
        for number, found in missing.items():
            rows = self._pieces[number].weight
            self._kept |= {token: rows[token % _TIED_PIECE].clone() for token in found}
        return torch.stack([self._kept[token] for token in wanted])


def vocabulary_layers(
    embedding: Tensor, output: Tensor, linear: MakeLinear
) -> tuple[Embed, OutputLayer]:
    """What reads tokens and what gives logits, from weights [vocabulary, hidden].

    Where the two are one and large, so is what is held.
    """
    tied = embedding.data_ptr() == output.data_ptr() and embedding.shape == output.shape
    large = output.numel() * output.element_size() >= _WORTH_SHARING
    vocabulary, hidden_size = output.shape
    embed: Embed = Table(embedding)
    pieces: Sequence[Callable[[Tensor], Tensor]]
    if tied and large and linear is Linear and packs(output):
        pieces = shared = [Linear(piece) for piece in torch.split(output, _TIED_PIECE)]
        embed = TiedTable(shared)
    else:
        pieces = [linear(piece, None) for piece in torch.split(output, PIECE)]
    return embed, OutputLayer(pieces, vocabulary, hidden_size, output.dtype, output.device)
