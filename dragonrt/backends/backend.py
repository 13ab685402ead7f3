"""The interface of a backend, which runs one model (tests: `dragonrt.testing.backend_contract`)."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.resources import KvPool


class Preempted(Exception):  # noqa: N818 - the term of the paper; nothing went wrong
    """The forward was stopped by its `Preemption`, and added no token to its rows."""


class Preemption:
    """A flag that any thread may set to stop a forward whose result is not needed (DRAGON 4.2).

    A backend checks the flag between layers, or registers a callback with `watch`. The flag stays
    set: a forward that begins later with the same object is stopped, too.
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
        """Have `watcher` called when a stop is requested, in that thread; None: call nothing."""
        self._watcher = watcher


SHARED_TOKENS = 12
"""Rows times tokens that take llama.cpp on a CPU as long as two forwards of two rows."""
ENOUGH = 16
"""Tokens of an exact forward from which on a question gains nothing by larger ones."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The properties of a loaded model.

    Attributes:
        parameters: the number of weights.
        fingerprint: identifies checkpoint and adapter; loading as another number type keeps it.
        tokenizer_fingerprint: identifies the meaning of token ids; only equal ones can aggregate.
        vocabulary: the size of a distribution; may exceed the number of the tokenizer's tokens.
        context_length: the most tokens of a row: a document and everything after it.
        device: cpu, cuda, mps, or gpu if llama.cpp was built for one.
        device_memory: bytes of the accelerator's memory; None without one, or if it is unknown.
        dtype: the number type of the weights: float32, bfloat16, float16, or types of a GGUF file.
        version: identifies the kernels and formats; another version may compute other last bits.
        engine: the name of the library, with version and instruction sets, for people to read.
        exact_blocks: whether the bits of a row depend on that row alone: not on the number of
            tokens in a block, nor on the rows and requests that share the forward.
        exact_tokens: the most rows times tokens of a forward with `exact_blocks`; None: any number.
        single_from: the position in a row from which a forward of one token gives other last bits
            than a larger forward, so the backend avoids such forwards; None: no position.
        prompt_piece: prompts are split between forwards only at multiples of this many tokens per
            row; 1 if the bits of a prompt do not depend on where it is split.
        finetune: the purpose or name that the model's file gives, which selects a prompt; or "".
        exact_batches: whether a feed gives the same bits whatever other feeds share its forward.
        kv_memory: bytes that the engine reserved for KV when loading; None: it allocates as needed.
        shared_tokens: the most rows times tokens that a forward on a CPU reads of prompts while
            several answers are open, or of a client's answers while other clients have some open.
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
    single_from: int | None = None
    prompt_piece: int = 1
    finetune: str = ""
    exact_batches: bool = True
    kv_memory: int | None = None
    shared_tokens: int = SHARED_TOKENS

    @property
    def question_piece(self) -> int:
        """Return n: forwards split a question only at multiples of n tokens; 1 is anywhere."""
        enough = self.exact_tokens is None or self.exact_tokens >= ENOUGH
        return 1 if self.exact_blocks and enough else self.prompt_piece


class Tokenizer(Protocol):
    """Turns text into token ids and back, and chat messages into a prompt."""

    start: str  # the text of the token that every text begins with; empty if there is none
    is_chat: bool  # whether there is a chat template

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without tokens that mark its start or end."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids. Special tokens add no text."""

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return messages (role and content) as a prompt. ModelError if the template refuses."""


class Document(Protocol):
    """The KV of a document's tokens, in a format of the backend's own. A row begins with one."""

    @property
    def length(self) -> int:
        """Return the number of the document's tokens."""

    def dump(self) -> dict[str, NDArray[Any]]:
        """Return the document as named arrays, to store in a file; `Backend.load` reads them."""


class Rows(Protocol):
    """The KV of several rows: each has its own document, followed by tokens that all rows share.

    Rows do not know how many shared tokens are valid. Each Feed gives that number; later tokens are
    ignored and overwritten, so a stopped forward leaves no trace.
    """

    def reserve(self, tokens: int) -> None:
        """Allocate room for `tokens` shared tokens in total. The tokens that are stored stay."""

    def document(self, row: int, length: int) -> Document:
        """Make a Document of the first `length` shared tokens of a `row` with an empty document."""


class RowLogits(Protocol):
    """Each row's next-token distribution after one token, in the memory of the model's device."""

    def mixed(self, log_weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the sum of the rows' distributions, weighted by exp(log_weights): [vocabulary]."""

    def log_probabilities(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return each row's log-probabilities of some token ids: [rows, len(tokens)]."""

    def probability(self, token: int) -> NDArray[np.float64]:
        """Return each row's probability of one token id: [rows]."""

    def hidden(self) -> NDArray[np.float32]:
        """Return the output layer's input [rows, hidden size], which `Feed.hidden` must request."""

    def copy(self) -> "RowLogits":
        """Return a copy that does not keep the other logits of its forward in memory."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Tokens to append to `rows`, from `Backend.open`, after the first `length` shared tokens.

    If `every`, the logits after each token are returned, otherwise those after the last. `prompt`
    marks the tokens of a prompt, for which a backend may use other kernels than for an answer's.
    `hidden` requests `RowLogits.hidden`.
    """

    rows: Any
    tokens: Sequence[int]
    length: int
    every: bool
    preemption: Preemption
    prompt: bool
    hidden: bool = False


class Backend(Protocol):
    """A loaded model, which reads documents and predicts the next tokens of rows.

    One thread calls it; any thread may read attributes and call `load`. `pool` limits its KV.
    """

    info: ModelInfo
    tokenizer: Tokenizer
    pool: KvPool

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> Document:
        """Return the document that `dump` turned into `arrays`; ModelError for other arrays."""

    def empty(self) -> Document:
        """Return a document without tokens, for rows that begin with none."""

    def token_document(self, tokens: Sequence[int]) -> Document | None:
        """Return a Document without a forward if the engine (vLLM) keeps KV itself, else None."""
        return None

    def open(self, documents: Sequence[Document], capacity: int) -> Rows:
        """Return one row per document, with room for `capacity` shared tokens.

        Raises ModelError for another model's document or too much KV, BusyError if memory is full.
        """

    def forward(self, feeds: Sequence[Feed]) -> Sequence[Sequence[RowLogits] | None]:
        """Compute all feeds, store their KV in their rows, and return the RowLogits of each feed.

        No two feeds may have the same rows. The result of a feed is a list, or None if preempted.
        """


def vocabulary_fingerprint(kind: str, tokens: Mapping[str, int]) -> str:
    """Return a SHA-256, in hexadecimal, that is equal if token ids mean the same in two models.

    `tokens` has each token's text and id, and `kind` is how they become text, such as "byte-level".
    Sides with equal hashes can mix distributions, even if they split texts into other tokens.
    """
    text = json.dumps([kind, sorted(tokens.items())], ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
