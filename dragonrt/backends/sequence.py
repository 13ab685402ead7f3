"""Rows, one per document, that share their newest tokens (SPEC section 1)."""

from collections.abc import Sequence as Tokens
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dragonrt.backends.decoder import Decoder, DecoderCache, Feed, Output
from dragonrt.backends.kv_pool import KvPool
from dragonrt.backends.preemption import Preempted, Preemption
from dragonrt.backends.torch_.document import DocumentKV
from dragonrt.errors import ModelError

# Rows times tokens of one forward of one sequence: bounds its memory and the time until a
# preemption is noticed.
_LARGEST_BLOCK = 1024


class Sequence:
    """`[document][shared tokens]`, one row per document.

    Nothing of an `extend` is kept unless it completes, so a preempted one leaves no trace.
    """

    def __init__(
        self,
        decoder: Decoder[Any],
        documents: Tokens[DocumentKV],
        capacity: int,
        pool: KvPool | None = None,
    ) -> None:
        """`capacity` is the number of shared tokens to make room for at first, in `pool`.

        Raises:
            ModelError: no document, or one whose KV is another model's or too long; more than the
                pool may ever hold.
            BusyError: more than the pool has now.
        """
        if not documents:
            raise ModelError("a sequence needs at least one document, though it may be empty")
        self._decoder = decoder
        self.longest_document = max(document.length for document in documents)
        self._length = 0
        self.rows = len(documents)
        for document in documents:
            self._check_document(document)
        self._check_context(self.longest_document)
        capacity = max(1, min(capacity, decoder.geometry.context_length - self.longest_document))
        self._pool, self._bytes = pool, decoder.memory(documents, capacity)
        self._room = None if pool is None else pool.room(self._bytes, documents)
        with torch.inference_mode():
            self._cache = decoder.open(documents, capacity)

    @property
    def length(self) -> int:
        """The number of shared tokens."""
        return self._length

    def extend(
        self,
        tokens: Tokens[int],
        preemption: Preemption | None = None,
        *,
        prompt: bool = False,
    ) -> Tensor:
        """Append tokens; float32 log-probabilities [rows, vocabulary] of what follows the last.

        `prompt`: see Extension.

        Raises:
            Preempted: `preemption` was requested; nothing has changed.
            ModelError: no tokens, an unknown token, or more than the context holds.
        """
        extension = Extension(self, tokens, False, preemption or Preemption(), prompt)
        return _extended(extension).log_probabilities[:, 0]

    def extend_all(self, tokens: Tokens[int], preemption: Preemption | None = None) -> Tensor:
        """Like `extend`, after each of the tokens: [rows, len(tokens), vocabulary]."""
        return self.extend_hidden(tokens, preemption).log_probabilities

    def extend_hidden(
        self, tokens: Tokens[int], preemption: Preemption | None = None, *, every: bool = True
    ) -> Output:
        """Like `extend_all`, with what the output layer read (after the final norm), in float32.

        Without `every` the output of the last token alone.
        """
        return _extended(Extension(self, tokens, every, preemption or Preemption()))

    def truncate(self, length: int) -> None:
        """Keep the first `length` shared tokens.

        Raises:
            ModelError: there are fewer.
        """
        if not 0 <= length <= self._length:
            raise ModelError(f"cannot cut a sequence of {self._length} tokens to {length}")
        self._length = length

    def fork(self) -> "Sequence":
        """A copy that goes its own way: another text behind the same documents and prompt.

        Raises:
            BusyError: the pool has no room for it now.
        """
        other = copy(self)
        other._room = None if self._pool is None else self._pool.room(self._bytes)
        with torch.inference_mode():
            other._cache = self._cache.fork(self._length)
        return other

    def shared_kv(self, row: int) -> DocumentKV:
        """A copy of the shared tokens' keys and values; the row must have an empty document."""
        cache: DecoderCache = self._cache
        return cache.read(row, self._length)

    def _check(self, tokens: Tokens[int]) -> None:
        geometry = self._decoder.geometry
        if not tokens:
            raise ModelError("no tokens to extend the sequence with")
        if min(tokens) < 0 or max(tokens) >= geometry.vocabulary:
            raise ModelError(f"tokens must lie between 0 and {geometry.vocabulary - 1}")
        self._check_context(self.longest_document + self._length + len(tokens))

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


@dataclass(frozen=True, slots=True)
class Extension:
    """Tokens to append to a sequence. Without `every` only the last one's output is wanted.

    Tokens of a `prompt`, which is always read as one, are read faster; their last bits are others
    than the same tokens would have in an answer.
    """

    sequence: Sequence
    tokens: Tokens[int]
    every: bool = True
    preemption: Preemption = field(default_factory=Preemption)
    prompt: bool = False


Extended = Output | Preempted | ModelError
"""What came of an Extension; with an exception nothing of its sequence has changed."""


class ExtensionProgress:
    """An Extension on its way through as many forwards as it takes."""

    def __init__(self, extension: Extension) -> None:
        self.extension = extension
        self.result: Extended | None = None
        self._outputs: list[Output] = []
        self._done = 0
        self._taken = 0
        sequence = extension.sequence
        try:
            sequence._check(extension.tokens)
        except ModelError as error:
            self.result = error
        else:
            with torch.inference_mode():
                sequence._cache.reserve(sequence.length + len(extension.tokens))

    @property
    def size(self) -> int:
        """Its rows times tokens."""
        return len(self.extension.tokens) * self.extension.sequence.rows

    def feed(self, most: int) -> Feed[Any]:
        """What the next forward is to compute of it: `most` rows times tokens, but one token."""
        given, sequence = self.extension, self.extension.sequence
        self._taken = max(1, most // sequence.rows)
        tokens = given.tokens[self._done : self._done + self._taken]
        length = sequence.length + self._done
        return Feed(sequence._cache, tokens, length, given.every, given.preemption, given.prompt)

    def take(self, output: Output | None) -> None:
        """What that forward said, or None if it was preempted."""
        if output is None:
            self.result = Preempted()
            return
        given = self.extension
        self._outputs = [*self._outputs, output] if given.every else [output]
        self._done += self._taken
        if self._done >= len(given.tokens):
            given.sequence._length += len(given.tokens)
            log_probabilities, hidden = (
                parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
                for parts in zip(*self._outputs, strict=True)
            )
            self.result = Output(log_probabilities, hidden.float())


def advance(parts: Tokens[tuple[ExtensionProgress, int]]) -> None:
    """One forward of one model: each extension gains at most so many rows times tokens.

    Where blocks are exact, what a sequence gets does not depend on who shares the forward;
    elsewhere each is computed by itself, so that it does not either.
    """
    decoder = parts[0][0].extension.sequence._decoder
    if any(progress.extension.sequence._decoder is not decoder for progress, _ in parts):
        raise ValueError("sequences of different models cannot be extended together")
    if len({id(progress.extension.sequence) for progress, _ in parts}) < len(parts):
        raise ValueError("a sequence cannot be extended twice at once")
    feeds = [progress.feed(most) for progress, most in parts]
    with torch.inference_mode():
        if decoder.exact_blocks:
            outputs = decoder.forward(feeds)
        else:
            outputs = [decoder.forward([feed])[0] for feed in feeds]
        for (progress, _), output in zip(parts, outputs, strict=True):
            progress.take(output)


def extend_together(extensions: Tokens[Extension]) -> list[Extended]:
    """Extend several sequences of one model, a forward for all of them, each as if alone.

    A sequence may be named once. Returns for each what `Sequence.extend_hidden` would, or the
    exception that it would raise; the others are not affected.
    """
    all_of_them = [ExtensionProgress(extension) for extension in extensions]
    while waiting := [progress for progress in all_of_them if progress.result is None]:
        advance([(progress, _LARGEST_BLOCK) for progress in waiting])
    return [progress.result for progress in all_of_them if progress.result is not None]


def _extended(extension: Extension) -> Output:
    (result,) = extend_together([extension])
    if isinstance(result, Exception):
        raise result
    return result


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
    sequence.extend(tokens, prompt=True)
    return sequence.shared_kv(0)
