"""Rows, one per document, that share their newest tokens (SPEC section 1)."""

from collections.abc import Sequence as Tokens
from copy import copy
from dataclasses import dataclass, field

from dragonrt.backends.backend import Backend, Document, Feed, Preempted, Preemption, RowLogits
from dragonrt.backends.kv_pool import KvPool
from dragonrt.errors import ModelError

LARGEST_BLOCK = 1024
"""Rows times tokens of one forward of one sequence: bounds its memory, and the time until a
preemption is noticed."""


class Sequence:
    """`[document][shared tokens]`, one row per document.

    Nothing of an extension is kept unless it completes, so a preempted one leaves no trace.
    """

    def __init__(
        self,
        backend: Backend,
        documents: Tokens[Document],
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
        self.backend = backend
        self.longest_document = max(document.length for document in documents)
        self.length = 0
        self.rows = len(documents)
        self._check_context(self.longest_document)
        capacity = max(1, min(capacity, backend.info.context_length - self.longest_document))
        self._pool, self._bytes = pool, backend.memory(documents, capacity)
        self._room = None if pool is None else pool.room(self._bytes, documents)
        self.kv = backend.open(documents, capacity)

    def extend(self, tokens: Tokens[int], *, prompt: bool = False) -> RowLogits:
        """Append tokens; return the logits after the last. `prompt`: see Extension.

        Raises ModelError for no tokens, an unknown token, or more than the context holds.
        """
        return _extended(Extension(self, tokens, False, prompt=prompt))[0]

    def extend_all(self, tokens: Tokens[int]) -> list[RowLogits]:
        """Append tokens; return the logits after each of them. Raises like `extend`."""
        return _extended(Extension(self, tokens))

    def truncate(self, length: int) -> None:
        """Keep the first `length` shared tokens. Raises ModelError if there are fewer."""
        if not 0 <= length <= self.length:
            raise ModelError(f"cannot cut a sequence of {self.length} tokens to {length}")
        self.length = length

    def fork(self) -> "Sequence":
        """Return a copy for another text behind the same documents and shared tokens.

        Raises BusyError if the pool has no room for it now.
        """
        other = copy(self)
        other._room = None if self._pool is None else self._pool.room(self._bytes)
        other.kv = self.kv.fork(self.length)
        return other

    def check(self, tokens: Tokens[int]) -> None:
        """Raise ModelError unless these tokens can be appended."""
        vocabulary = self.backend.info.vocabulary
        if not tokens:
            raise ModelError("no tokens to extend the sequence with")
        if min(tokens) < 0 or max(tokens) >= vocabulary:
            raise ModelError(f"tokens must lie between 0 and {vocabulary - 1}")
        self._check_context(self.longest_document + self.length + len(tokens))

    def _check_context(self, tokens: int) -> None:
        limit = self.backend.info.context_length
        if tokens > limit:
            raise ModelError(
                f"document and text of {tokens} tokens exceed the model's context of {limit}: "
                "use shorter documents or a shorter answer"
            )


@dataclass(frozen=True, slots=True)
class Extension:
    """Tokens to append to a sequence. Without `every` only the last one's logits are wanted.

    Tokens of a `prompt`, which is always read as one, are read faster; their last bits are others
    than the same tokens would have in an answer.
    """

    sequence: Sequence
    tokens: Tokens[int]
    every: bool = True
    preemption: Preemption = field(default_factory=Preemption)
    prompt: bool = False


Extended = list[RowLogits] | Preempted | ModelError
"""The result of an Extension; with an exception nothing of its sequence has changed."""


class ExtensionProgress:
    """An Extension on its way through as many forwards as it takes."""

    def __init__(self, extension: Extension) -> None:
        self.extension = extension
        self.result: Extended | None = None
        self._logits: list[RowLogits] = []
        self._done = 0
        self._taken = 0
        sequence = extension.sequence
        try:
            sequence.check(extension.tokens)
        except ModelError as error:
            self.result = error
        else:
            sequence.kv.reserve(sequence.length + len(extension.tokens))

    @property
    def size(self) -> int:
        """Its rows times tokens."""
        return len(self.extension.tokens) * self.extension.sequence.rows

    def feed(self, most: int) -> Feed:
        """Return the part for the next forward: `most` rows times tokens, at least one token."""
        given, sequence = self.extension, self.extension.sequence
        self._taken = max(1, most // sequence.rows)
        tokens = given.tokens[self._done : self._done + self._taken]
        length = sequence.length + self._done
        return Feed(sequence.kv, tokens, length, given.every, given.preemption, given.prompt)

    def take(self, logits: Tokens[RowLogits] | None) -> None:
        """Add the result of that forward; None if it was preempted."""
        if logits is None:
            self.result = Preempted()
            return
        given = self.extension
        self._logits = [*self._logits, *logits] if given.every else [*logits]
        self._done += self._taken
        if self._done >= len(given.tokens):
            given.sequence.length += len(given.tokens)
            self.result = self._logits


def advance(parts: Tokens[tuple[ExtensionProgress, int]]) -> None:
    """Run one forward of one model: each extension gains at most so many rows times tokens."""
    backend = parts[0][0].extension.sequence.backend
    if any(progress.extension.sequence.backend is not backend for progress, _ in parts):
        raise ValueError("sequences of different models cannot be extended together")
    if len({id(progress.extension.sequence) for progress, _ in parts}) < len(parts):
        raise ValueError("a sequence cannot be extended twice at once")
    results = backend.forward([progress.feed(most) for progress, most in parts])
    for (progress, _), logits in zip(parts, results, strict=True):
        progress.take(logits)


def extend_together(extensions: Tokens[Extension]) -> list[Extended]:
    """Extend several sequences of one model in shared forwards, each as if alone.

    A sequence may be named once. An exception of one does not affect the others.
    """
    all_of_them = [ExtensionProgress(extension) for extension in extensions]
    while waiting := [progress for progress in all_of_them if progress.result is None]:
        advance([(progress, LARGEST_BLOCK) for progress in waiting])
    return [progress.result for progress in all_of_them if progress.result is not None]


def _extended(extension: Extension) -> list[RowLogits]:
    (result,) = extend_together([extension])
    if isinstance(result, Exception):
        raise result
    return result
