"""Rows, one per document, that share their newest tokens (SPEC section 1)."""

from collections.abc import Sequence as Tokens
from typing import Any

import torch
from torch import Tensor

from dragonrt.language.decoder import Decoder, DecoderCache, Output
from dragonrt.language.document import DocumentKV
from dragonrt.language.errors import ModelError
from dragonrt.language.preemption import Preemption

# Rows times tokens of one forward: bounds its memory and the time until a preemption is noticed.
_LARGEST_BLOCK = 1024


class Sequence:
    """`[document][shared tokens]`, one row per document.

    Nothing of an `extend` is kept unless it completes, so a preempted one leaves no trace.
    """

    def __init__(self, decoder: Decoder[Any], documents: Tokens[DocumentKV], capacity: int) -> None:
        """`capacity` is the number of shared tokens to make room for at first.

        Raises:
            ModelError: no document, or one whose KV is another model's or too long.
        """
        if not documents:
            raise ModelError("a sequence needs at least one document, though it may be empty")
        self._decoder = decoder
        self._longest = max(document.length for document in documents)
        self._length = 0
        self.rows = len(documents)
        for document in documents:
            self._check_document(document)
        self._check_context(self._longest)
        capacity = max(1, min(capacity, decoder.geometry.context_length - self._longest))
        with torch.inference_mode():
            self._cache = decoder.open(documents, capacity)

    @property
    def length(self) -> int:
        """The number of shared tokens."""
        return self._length

    def extend(self, tokens: Tokens[int], preemption: Preemption | None = None) -> Tensor:
        """Append tokens; float32 log-probabilities [rows, vocabulary] of what follows the last.

        Raises:
            Preempted: `preemption` was requested; nothing has changed.
            ModelError: no tokens, an unknown token, or more than the context holds.
        """
        return self._run(tokens, False, preemption)[-1].log_probabilities[:, -1]

    def extend_all(self, tokens: Tokens[int], preemption: Preemption | None = None) -> Tensor:
        """Like `extend`, after each of the tokens: [rows, len(tokens), vocabulary]."""
        parts = self._run(tokens, True, preemption)
        return torch.cat([part.log_probabilities for part in parts], dim=1)

    def extend_hidden(
        self, tokens: Tokens[int], preemption: Preemption | None = None, *, every: bool = True
    ) -> Output:
        """Like `extend_all`, with what the output layer read (after the final norm), in float32.

        Without `every` the output of the last token alone.
        """
        parts = self._run(tokens, every, preemption)
        if not every:
            parts = parts[-1:]
        return Output(
            torch.cat([part.log_probabilities for part in parts], dim=1),
            torch.cat([part.hidden for part in parts], dim=1).float(),
        )

    def truncate(self, length: int) -> None:
        """Keep the first `length` shared tokens.

        Raises:
            ModelError: there are fewer.
        """
        if not 0 <= length <= self._length:
            raise ModelError(f"cannot cut a sequence of {self._length} tokens to {length}")
        self._length = length

    def shared_kv(self, row: int) -> DocumentKV:
        """A copy of the shared tokens' keys and values; the row must have an empty document."""
        cache: DecoderCache = self._cache
        return cache.read(row, self._length)

    def _run(self, tokens: Tokens[int], every: bool, preemption: Preemption | None) -> list[Output]:
        geometry = self._decoder.geometry
        if not tokens:
            raise ModelError("no tokens to extend the sequence with")
        if min(tokens) < 0 or max(tokens) >= geometry.vocabulary:
            raise ModelError(f"tokens must lie between 0 and {geometry.vocabulary - 1}")
        end = self._length + len(tokens)
        self._check_context(self._longest + end)
        preemption = preemption or Preemption()
        size = max(1, _LARGEST_BLOCK // self.rows)
        with torch.inference_mode():
            self._cache.reserve(end)
            parts = [
                self._decoder.forward(
                    self._cache,
                    tokens[start : start + size],
                    self._length + start,
                    every,
                    preemption,
                )
                for start in range(0, len(tokens), size)
            ]
        self._length = end
        return parts

    def _check_context(self, tokens: int) -> None:
        limit = self._decoder.geometry.context_length
        if tokens > limit:
            raise ModelError(
                f"document and text of {tokens} tokens exceed the model's context of {limit}: "
                "use shorter documents or a shorter answer"
            )

    def _check_document(self, document: DocumentKV) -> None:
        geometry = self._decoder.geometry
        length = document.length
        shapes = [tuple(tensor.shape) for tensor in document.keys + document.values]
        fitting = [(layer.heads, length, layer.key_dim) for layer in geometry.layers] + [
            (layer.heads, length, layer.value_dim) for layer in geometry.layers
        ]
        if shapes != fitting or document.keys[0].dtype != geometry.dtype:
            raise ModelError("a document's stored KV was made by another model: re-index it")


def document_kv(decoder: Decoder[Any], tokens: Tokens[int]) -> DocumentKV:
    """Prefill one document.

    Raises:
        ModelError: an unknown token, or more tokens than the context holds.
    """
    geometry = decoder.geometry
    shapes = [(layer.heads, layer.key_dim, layer.value_dim) for layer in geometry.layers]
    empty = DocumentKV(
        tuple(torch.empty(heads, 0, key, dtype=geometry.dtype) for heads, key, _ in shapes),
        tuple(torch.empty(heads, 0, value, dtype=geometry.dtype) for heads, _, value in shapes),
    )
    if not tokens:
        return empty
    sequence = Sequence(decoder, [empty], len(tokens))
    sequence.extend(tokens)
    return sequence.shared_kv(0)
