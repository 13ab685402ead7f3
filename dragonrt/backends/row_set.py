"""Open rows, one per document, then append the same tokens to all of them, or remove some."""

from collections.abc import Sequence

from dragonrt.backends.backend import Backend, Document, Feed, Preemption, RowLogits
from dragonrt.errors import ModelError

LARGEST = 1024
"""Rows times tokens of one forward: bounds its memory."""


class RowSet:
    """Rows with their KV: one per document, each followed by the same `length` shared tokens."""

    def __init__(self, backend: Backend, documents: Sequence[Document], capacity: int) -> None:
        """Open rows with room for `capacity` shared tokens. Raises ModelError or BusyError."""
        if not documents:
            raise ModelError("rows need at least one document, though it may be empty")
        self.backend, self.info = backend, backend.info
        self.longest_document = max(document.length for document in documents)
        self.length = 0
        self.count = len(documents)
        self._check_context(0)
        capacity = max(1, min(capacity, self.info.context_length - self.longest_document))
        self.kv = backend.open(documents, capacity)

    def extend(
        self, tokens: Sequence[int], *, prompt: bool = False, hidden: bool = True
    ) -> RowLogits:
        """Append `tokens` to all rows now, without a scheduler; return the logits after the last.

        `prompt` marks tokens of a prompt, for which a backend may use other kernels. `hidden`
        requests hidden states. Raises ModelError for no tokens, or more than the rows can hold.
        """
        return self._extend(tokens, every=False, prompt=prompt, hidden=hidden)[-1]

    def extend_all(self, tokens: Sequence[int], *, hidden: bool = True) -> list[RowLogits]:
        return self._extend(tokens, every=True, hidden=hidden)

    def truncate(self, length: int) -> None:
        """Keep only the first `length` shared tokens. Raises ModelError if there are fewer."""
        if not 0 <= length <= self.length:
            raise ModelError(f"cannot cut rows of {self.length} tokens to {length}")
        self.length = length

    def reserve(self, tokens: Sequence[int]) -> None:
        """Check `tokens`, and make room to append them to each row.

        Raises ModelError for no tokens, an unknown one, or more than the context holds.
        """
        vocabulary = self.info.vocabulary
        if not tokens:
            raise ModelError("no tokens to extend the rows with")
        if min(tokens) < 0 or max(tokens) >= vocabulary:
            raise ModelError(f"tokens must lie between 0 and {vocabulary - 1}")
        self._check_context(self.length + len(tokens))
        self.kv.reserve(self.length + len(tokens))

    def _extend(
        self, tokens: Sequence[int], *, every: bool, prompt: bool = False, hidden: bool = True
    ) -> list[RowLogits]:
        self.reserve(tokens)
        piece = self.info.prompt_piece if prompt else 1
        most = max(piece, LARGEST // self.count // piece * piece)
        found: list[RowLogits] = []
        for start in range(0, len(tokens), most):
            part = tokens[start : start + most]
            feed = Feed(self.kv, part, self.length, every, Preemption(), prompt, hidden)
            found += self.backend.forward([feed])[0] or ()
            self.length += len(part)
        return found

    def _check_context(self, shared: int) -> None:
        tokens, limit = self.longest_document + shared, self.info.context_length
        if tokens > limit:
            raise ModelError(
                f"document and text of {tokens} tokens exceed the model's context of {limit}: "
                "use shorter documents or a shorter answer"
            )
