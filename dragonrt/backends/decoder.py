"""What a model must offer so that rows of different documents can share their newest tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor

from dragonrt.backends.preemption import Preemption
from dragonrt.backends.torch_.document import DocumentKV


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer stores per token: `heads` keys of `key_dim` and values of `value_dim`."""

    heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes of a model, as far as its users need them."""

    layers: tuple[LayerShape, ...]
    vocabulary: int
    hidden_size: int
    context_length: int
    dtype: torch.dtype
    device: torch.device


class RowOutputs(NamedTuple):
    """What a model says after one token of every row."""

    log_probabilities: Tensor  # float32 [rows, vocabulary] of what follows
    hidden: Tensor  # [rows, hidden], what the output layer read


class Output(NamedTuple):
    """What a forward computes of every new token of every row, or of the last one only."""

    log_probabilities: Tensor  # float32 [rows, positions, vocabulary] of what follows
    hidden: Tensor  # [rows, positions, hidden], what the output layer reads, in the model's dtype

    def after(self, position: int) -> RowOutputs:
        """What the rows say after the token at this position."""
        return RowOutputs(self.log_probabilities[:, position], self.hidden[:, position])


class DecoderCache(Protocol):
    """The keys and values of all rows, with room for more tokens."""

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` shared tokens, keeping what is stored."""

    def fork(self, length: int) -> Self:
        """A copy of `length` shared tokens behind the documents that goes its own way."""

    def read(self, row: int, length: int) -> DocumentKV:
        """A copy of the first `length` shared tokens of a row without a document."""


Cache = TypeVar("Cache", bound=DecoderCache)


@dataclass(frozen=True, slots=True)
class Feed(Generic[Cache]):
    """New tokens of one cache: they come after the first `length` shared tokens of every row.

    `every`: the output of every new token is wanted, otherwise of the last only. `prompt`: the
    tokens are of a document or a question.
    """

    cache: Cache
    tokens: Sequence[int]
    length: int
    every: bool
    preemption: Preemption
    prompt: bool


class Decoder(Protocol, Generic[Cache]):
    """Weights that turn tokens into log-probabilities, given a cache they write into.

    A cache has no length of its own: the caller says where the new tokens go. Whatever lies beyond
    that point is ignored and overwritten, so a forward that is stopped leaves no trace.
    """

    @property
    def geometry(self) -> Geometry:
        """The sizes of the model."""

    @property
    def version(self) -> str:
        """Names the forward; another one has other bits."""

    @property
    def exact_blocks(self) -> bool:
        """Whether a row's bits depend on that row alone.

        Then they are the same whichever tokens, rows and sequences a forward computes with it.
        """

    def memory(self, documents: Sequence[DocumentKV], capacity: int) -> int:
        """The bytes that such a cache takes at most, beside documents that sessions share."""

    def open(self, documents: Sequence[DocumentKV], capacity: int) -> Cache:
        """A cache of one row per document, with room for `capacity` shared tokens."""

    def forward(self, feeds: Sequence[Feed[Cache]]) -> list[Output | None]:
        """Run what each cache is fed and store its KV; None for what was preempted."""
