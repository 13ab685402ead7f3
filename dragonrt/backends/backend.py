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
    """The forward was stopped by its `Preemption`; it added no token to its rows."""


class Preemption:
    """A flag that any thread may set to stop a forward (DRAGON 4.2).

    A backend reads it between layers, or is called through `watch`. It is never taken back: a
    forward with it that begins later is stopped as well.
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
        """Have the first `request` call `watcher`, in its caller's thread; None: call nothing."""
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
        context_length: the most tokens of a document and everything after it together.
        device: cpu, cuda, mps, or gpu if llama.cpp was built for one.
        device_memory: bytes of the accelerator's own memory; None if it has none.
        dtype: of the weights: float32, bfloat16, float16, or the types of a file.
        version: names the way of computing; with another version the same model gives other bits.
        engine: the library that computes, with version and instruction sets, for people.
        exact_blocks: whether the bits of a row depend on that row alone: not on the number of
            tokens in a block, nor on the rows and sequences that share the forward.
        exact_tokens: the most rows times tokens of a forward with `exact_blocks`; None: any number.
        lone_from: the position in a row from which a token that is alone in its forward is computed
            in a special way, to get the bits of a larger forward; None: nowhere.
        prompt_piece: how many tokens of each row of a `prompt` are always read together: it is cut
            only at multiples of this. 1 if its bits do not depend on where it is cut.
        finetune: what the weights were trained for or are called, by their file; may be empty.
        exact_batches: whether a feed gives the same bits whatever other feeds share its forward.
        kv_memory: bytes that the engine itself reserved for KV; None if it allocates as needed.
        beside_answers: on a CPU, the most rows times tokens of a forward that are of prompts while
            another answer is open, or of one client's answers while another client has some.
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
        """Return how many tokens of each row of a question are always read together.

        It is `prompt_piece`, or 1 (cut anywhere) if exact forwards carry at least ENOUGH tokens.
        """
        enough = self.exact_tokens is None or self.exact_tokens >= ENOUGH
        return 1 if self.exact_blocks and enough else self.prompt_piece


class Tokenizer(Protocol):
    """Turns text into token ids and back, and chat messages into a prompt."""

    start: str  # the text of the token that every text begins with; empty if there is none
    is_chat: bool  # whether there is a chat template

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without tokens that mark its start or end."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids; special tokens have none."""

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return messages (with role and content) as the prompt of an answer. Raises ModelError."""


class Document(Protocol):
    """A document as the model reads it: the KV of its tokens, in a form of the backend's own."""

    @property
    def length(self) -> int:
        """Return the number of tokens."""

    def dump(self) -> dict[str, NDArray[Any]]:
        """Return the document as arrays by name, to be stored; `Backend.load` is the inverse."""


class Rows(Protocol):
    """The keys and values of rows: a document each, followed by tokens that all rows share.

    Rows have no length: a Feed says behind how many shared tokens its own are put. Those that
    were there are ignored and overwritten, so a stopped forward leaves no trace.
    """

    def reserve(self, tokens: int) -> None:
        """Allocate room for `tokens` shared tokens in all; those that are stored stay."""

    def document(self, row: int, length: int) -> Document:
        """Return the first `length` shared tokens of `row` as a Document; its own must be empty."""


class RowLogits(Protocol):
    """Each row's next-token distribution after one token, in the memory of the model's device."""

    def mixed(self, log_weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the rows' distributions summed, each times exp(log_weights[row]): [vocabulary]."""

    def at(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return each row's log-probabilities of some token ids: [rows, len(tokens)]."""

    def probability(self, token: int) -> NDArray[np.float64]:
        """Return each row's probability of one token id: [rows]."""

    def hidden(self) -> NDArray[np.float32]:
        """Return the input of the output layer: [rows, hidden size]. Only with `Feed.hidden`."""

    def copy(self) -> "RowLogits":
        """Return a copy, which does not keep other logits of the same forward in memory."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Tokens to append to `rows` (of this backend's `open`), after the first `length` shared ones.

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
    """One loaded model. One thread calls it; any thread reads its attributes and calls `load`.

    `open` reserves the memory of rows in `pool`.
    """

    info: ModelInfo
    tokenizer: Tokenizer
    pool: KvPool

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> Document:
        """Return the document whose `dump` gave these arrays. Raises ModelError for others."""

    def empty(self) -> Document:
        """Return a document without tokens."""

    def unread(self, tokens: Sequence[int]) -> Document | None:
        """Return a document of these token ids if it needs no forward, as with vLLM; else None."""
        return None

    def open(self, documents: Sequence[Document], capacity: int) -> Rows:
        """Return one row per document, with room for `capacity` shared tokens.

        Raises ModelError if a document is another model's, and as `KvPool.room` for lack of memory.
        """

    def forward(self, feeds: Sequence[Feed]) -> Sequence[Sequence[RowLogits] | None]:
        """Compute and store the KV of all feeds, no two of which have the same rows.

        Returns for each feed a list of RowLogits, see `Feed.every`; None if the feed was preempted.
        """


def vocabulary_fingerprint(kind: str, tokens: Mapping[str, int]) -> str:
    """Return the SHA-256 of a kind of vocabulary and the ids of its tokens, in hexadecimal.

    How a text is split into tokens is left out: each side reads its own texts. `kind` is
    "byte-level", "sentencepiece", or another way in which tokens become text.
    """
    text = json.dumps([kind, sorted(tokens.items())], ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
