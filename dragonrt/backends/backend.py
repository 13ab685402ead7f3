"""The contract of a backend, which runs one model (tests: `dragonrt.testing.backend_contract`)."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.resources import KvPool


class Preempted(Exception):  # noqa: N818 - the term of the paper; nothing went wrong
    """The forward was stopped on request; the sequence is unchanged."""


class Preemption:
    """A flag that any thread may set to stop a forward (DRAGON 4.2).

    A backend reads it between layers, or has itself called by `watch`. A request stays: a forward
    that begins later is stopped as well.
    """

    def __init__(self) -> None:
        self._requested = False
        self._watcher: Callable[[], None] | None = None

    @property
    def requested(self) -> bool:
        """Return whether forwards with this flag should stop."""
        return self._requested

    def request(self) -> None:
        if not self._requested:
            self._requested = True
            if (watcher := self._watcher) is not None:
                watcher()

    def watch(self, watcher: Callable[[], None] | None) -> None:
        """Have `watcher` called by the next `request`, in its thread; None: nothing any more."""
        self._watcher = watcher


BESIDE_ANSWERS = 12
"""Rows times tokens that take llama.cpp on a CPU as long as two forwards of two rows."""
ENOUGH = 16
"""Tokens of an exact forward from which on a question gains nothing by larger ones."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The properties of a loaded model.

    Attributes:
        parameters: the number of weights.
        fingerprint: differs if checkpoint or adapter differ; the same in every number type.
        tokenizer_fingerprint: differs if token ids differ in meaning: such sides cannot aggregate.
        vocabulary: the size of a distribution; may exceed the number of the tokenizer's tokens.
        context_length: the most tokens of a document and everything after it.
        device: cpu, cuda, mps, or gpu if llama.cpp was built for one.
        device_memory: bytes of the accelerator's own memory; None if it has none.
        dtype: of the weights: float32, bfloat16, float16, or the types of a file.
        version: names the forward; another version gives other bits.
        engine: what computes it, with version and instruction sets, for people.
        exact_blocks: whether the bits of a row depend on that row alone: not on the number of
            tokens in a block, nor on the rows and sequences that share the forward.
        exact_tokens: the most rows times tokens of a forward for which that holds; None: any.
        lone_from: the position from which the engine computes a lone token in another way, so that
            it has the bits of a larger forward; None: nowhere.
        prompt_piece: the tokens of each row that are always read together in a `prompt`; 1 if its
            bits do not depend on how it is cut. A prompt is cut at multiples of it alone.
        finetune: what the weights were trained for or are called, by their file; may be empty.
        exact_batches: whether forwards of the same feeds give a row the same bits in any company.
        kv_memory: bytes that the engine itself reserved for KV; None if it allocates as needed.
        beside_answers: rows times tokens of prompts in a forward while another answer is open, and
            of one client's answers beside another's; on an accelerator any number.
    """

    parameters: int
    fingerprint: str
    tokenizer_fingerprint: str
    stop_tokens: tuple[int, ...]
    vocabulary: int
    context_length: int
    device: str
    device_memory: int | None
    dtype: str
    version: str
    engine: str
    exact_blocks: bool
    exact_tokens: int | None = None
    lone_from: int | None = None
    prompt_piece: int = 1
    finetune: str = ""
    exact_batches: bool = True
    kv_memory: int | None = None
    beside_answers: int = BESIDE_ANSWERS

    @property
    def question_piece(self) -> int:
        """Return the tokens of each row of a question that are always read together.

        It is 1 if exact forwards carry enough: then questions share forwards, cut anywhere.
        """
        enough = self.exact_tokens is None or self.exact_tokens >= ENOUGH
        return 1 if self.exact_blocks and enough else self.prompt_piece


class Tokenizer(Protocol):
    """Text to tokens and back."""

    start: str  # the text of the token that every text begins with; empty if there is none
    is_chat: bool  # whether there is a chat template

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without added ones."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special ones."""

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Render messages up to the start of the answer. Raises ModelError for invalid roles."""


class Document(Protocol):
    """The keys and values of one document's tokens. Opaque."""

    @property
    def length(self) -> int:
        """Return the number of tokens."""

    def dump(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a store keeps; `Backend.load` is the inverse."""


class Rows(Protocol):
    """The keys and values of rows: a document each, followed by tokens that all rows share.

    Rows have no length: a Feed gives the place of new tokens. Tokens after that place are ignored
    and overwritten, so a stopped forward leaves no trace.
    """

    def reserve(self, tokens: int) -> None:
        """Allocate room for `tokens` shared tokens, keeping stored ones."""

    def document(self, row: int, length: int) -> Document:
        """Return a copy of the first `length` shared tokens of a row with an empty document."""


class RowLogits(Protocol):
    """The predictions after one token of every row, in the memory of the model's device."""

    def mixed(self, log_weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the mixture of the rows' distributions [vocabulary]; weights are [rows]."""

    def at(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the log-probabilities of some tokens: [rows, len(tokens)]."""

    def probability(self, token: int) -> NDArray[np.float64]:
        """Return the probability of one token by each row: [rows]."""

    def hidden(self) -> NDArray[np.float32]:
        """Return the input of the output layer: [rows, hidden size]. Only if the Feed wants it."""

    def copy(self) -> "RowLogits":
        """Return a copy in its own memory."""


@dataclass(frozen=True, slots=True)
class Feed:
    """New tokens of some rows, after the first `length` shared ones.

    `every`: return the logits after each token, otherwise after the last. Feed the tokens of a
    `prompt` always as such: a backend may compute them in another way, with other last bits.
    `hidden`: `RowLogits.hidden` is wanted, too.
    """

    rows: Any
    tokens: Sequence[int]
    length: int
    every: bool
    preemption: Preemption
    prompt: bool
    hidden: bool = False


class Backend(Protocol):
    """One loaded model, used by one thread except for its attributes and `load`.

    `open` takes the memory of rows from `pool`.
    """

    info: ModelInfo
    tokenizer: Tokenizer
    pool: KvPool

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> Document:
        """Return the document of dumped arrays. Raises ModelError for others."""

    def empty(self) -> Document:
        """Return a document without tokens."""

    def unread(self, tokens: Sequence[int]) -> Document | None:
        """Return the document of these tokens if it is one before any forward."""
        return None

    def open(self, documents: Sequence[Document], capacity: int) -> Rows:
        """Return one row per document, with room for `capacity` shared tokens.

        Raises ModelError if a document is another model's; see also `KvPool.room`.
        """

    def forward(self, feeds: Sequence[Feed]) -> Sequence[Sequence[RowLogits] | None]:
        """Compute and store the KV of all feeds, each of other rows.

        Returns for each the logits after every token, or after the last; None if it was preempted.
        """


def vocabulary_fingerprint(kind: str, tokens: Mapping[str, int]) -> str:
    """Return the SHA-256 of a kind of vocabulary and the ids of its tokens, in hexadecimal.

    How a text is split into tokens is left out: each side reads its own texts. `kind` is
    "byte-level", "sentencepiece", or another way in which tokens become text.
    """
    text = json.dumps([kind, sorted(tokens.items())], ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
