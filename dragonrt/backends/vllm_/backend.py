"""Implements the contract of a backend by requests of one token to vLLM's engine.

A row's prediction is a request of the row's whole text. vLLM's prefix cache has the KV of all full
blocks, so that a request computes the tokens of the last block alone. Rows are lists of tokens:
going back is cutting a list, and what a cache has dropped is computed again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from dragonrt.backends.backend import Feed, ModelInfo, Tokenizer
from dragonrt.backends.transformers_.backend import TorchLogits
from dragonrt.errors import ModelError

if TYPE_CHECKING:
    from dragonrt.backends.vllm_.rows import Row

TOKENS = "tokens"


class Engine(Protocol):
    """What the backend needs of vLLM's engine (`engine.VllmEngine`)."""

    @property
    def busy(self) -> bool:
        """Return whether requests are unfinished."""

    def add(self, key: int, tokens: Sequence[int]) -> None:
        """Add a request of one token behind these."""

    def step(self) -> None:
        """Run one forward of as many requests as it holds."""

    def abort(self, keys: Sequence[int]) -> None:
        """Remove requests, as far as they are unfinished."""

    def take(self, keys: Sequence[int]) -> "list[Row]":
        """Return the rows of finished requests, and forget all others."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TokenDocument:
    """Implements Document: its tokens, of which the engine keeps or computes the KV."""

    tokens: tuple[int, ...]

    @property
    def length(self) -> int:
        return len(self.tokens)

    def dump(self) -> dict[str, NDArray[Any]]:
        return {TOKENS: np.array(self.tokens, np.int32)}


class TokenRows:
    """Implements Rows: the tokens of each document, and the shared ones."""

    def __init__(self, documents: Sequence[TokenDocument]) -> None:
        self.documents = [list(each.tokens) for each in documents]
        self.shared: list[int] = []

    def reserve(self, tokens: int) -> None:
        """Do nothing: lists grow."""

    def document(self, row: int, length: int) -> TokenDocument:
        return TokenDocument(tuple(self.shared[:length]))

    def append(self, feed: Feed) -> list[list[int]]:
        """Append new tokens; return the texts to predict behind: all rows of a token first."""
        self.shared[feed.length :] = feed.tokens
        end = len(self.shared)
        ends = range(feed.length + 1 if feed.every else end, end + 1)
        return [document + self.shared[:stop] for stop in ends for document in self.documents]


class VllmBackend:
    """Implements Backend. All feeds of a call share the engine's batches.

    A preempted feed leaves between two of the engine's forwards.
    """

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, info: ModelInfo, bytes_per_token: int
    ) -> None:
        self.tokenizer, self.info = tokenizer, info
        self._engine, self._bytes_per_token = engine, bytes_per_token
        self._keys = count()
        self._dead = ""

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> TokenDocument:
        found = arrays.get(TOKENS)
        if len(arrays) != 1 or found is None or found.ndim != 1 or found.dtype != np.int32:
            raise ModelError("stored document has no list of tokens: re-index")
        return TokenDocument(tuple(found.tolist()))

    def empty(self) -> TokenDocument:
        return TokenDocument(())

    def memory(self, documents: Sequence[Any], capacity: int) -> int:
        tokens: int = sum(each.length + capacity for each in documents)
        return tokens * self._bytes_per_token

    def open(self, documents: Sequence[Any], capacity: int) -> TokenRows:
        if not all(isinstance(each, TokenDocument) for each in documents):
            raise ModelError("a document's stored KV was made by another engine: re-index it")
        if max(max(each.tokens, default=0) for each in documents) >= self.info.vocabulary:
            raise ModelError("a document's tokens are another model's: re-index it")
        return TokenRows(documents)

    def forward(self, feeds: Sequence[Feed]) -> list[list[TorchLogits] | None]:
        """See `Backend.forward`. Raises ModelError if the engine fails, and from then on."""
        if self._dead:
            raise ModelError(self._dead)
        try:
            return self._run(feeds)
        except Exception as error:  # of any kind: what an engine raises is no interface
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            self._dead = f"vLLM's engine failed ({reason}): restart this side"
            raise ModelError(self._dead) from error

    def _run(self, feeds: Sequence[Feed]) -> list[list[TorchLogits] | None]:
        keys: list[list[int]] = []
        for feed in feeds:
            texts = feed.rows.append(feed)
            keys.append([next(self._keys) for _ in texts])
            if not feed.preemption.requested:
                for key, text in zip(keys[-1], texts, strict=True):
                    self._engine.add(key, text)
        going = [True] * len(feeds)
        while True:
            for number, feed in enumerate(feeds):
                if going[number] and feed.preemption.requested:
                    going[number] = False
                    self._engine.abort(keys[number])
            if not self._engine.busy:
                break
            self._engine.step()
        wanted = [key for number, of in enumerate(keys) if going[number] for key in of]
        rows = iter(self._engine.take(wanted))
        return [
            _logits([next(rows) for _ in keys[number]], feed) if going[number] else None
            for number, feed in enumerate(feeds)
        ]


def _logits(rows: "list[Row]", feed: Feed) -> list[TorchLogits]:
    """Return the logits after each token of the rows of a feed."""
    size = len(feed.rows.documents)
    with torch.inference_mode():
        return [
            TorchLogits(*map(torch.stack, zip(*rows[start : start + size], strict=True)))
            for start in range(0, len(rows), size)
        ]
