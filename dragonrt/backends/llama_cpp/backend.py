"""Implements the interface of a backend on llama.cpp.

Rows are sequences of a context. A document is the saved state of a sequence. A forward reads as
many tokens at most as the self-test measured to be exact. Prompts are read in their own forwards.
"""

import hashlib
import weakref
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.backends.backend import (
    Backend,
    Document,
    Feed,
    ModelInfo,
    Preemption,
    RowLogits,
    Rows,
)
from dragonrt.backends.llama_cpp.context import LARGEST_FORWARD, Outputs, State, Token
from dragonrt.backends.llama_cpp.contexts import Contexts
from dragonrt.backends.llama_cpp.library import LlamaModel, load_library
from dragonrt.backends.llama_cpp.model_file import adapter_file, fingerprint
from dragonrt.backends.llama_cpp.self_test import exactness
from dragonrt.backends.llama_cpp.tokenizer import LlamaTokenizer
from dragonrt.backends.resources import usual_threads
from dragonrt.errors import ModelError

_FORMAT = 1  # of stored documents


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LlamaDocument:
    """A Document as the saved state of a llama.cpp sequence, which has the KV of its tokens."""

    length: int
    state: State

    def dump(self) -> dict[str, NDArray[Any]]:
        return {"length": np.array([_FORMAT, self.length]), "state": self.state}


class LlamaRows(Rows):
    """Rows as sequences of a llama.cpp context, which are freed when this object is deleted."""

    def __init__(self, contexts: Contexts, documents: Sequence[Document], capacity: int) -> None:
        self._contexts = contexts
        self.lengths = [document.length for document in documents]
        self._open(max(self.lengths) + capacity)
        for sequence, document in zip(self.sequences, documents, strict=True):
            if not isinstance(document, LlamaDocument):
                raise ModelError("the document is another backend's")
            if document.length:
                self.context.load(sequence, document.state)

    @override
    def reserve(self, tokens: int) -> None:
        cells = max(self.lengths) + tokens
        if cells > self.context.cells:
            context, sequences, release = self.context, self.sequences, self._release
            self._open(cells)
            for old, new in zip(sequences, self.sequences, strict=True):
                self.context.load(new, context.save(old))
            release()

    def _open(self, cells: int) -> None:
        self.context, self.sequences = self._contexts.open(len(self.lengths), cells)
        self.places = list(zip(self.sequences, self.lengths, strict=True))  # of the rows
        self._release = weakref.finalize(self, self.context.release, self.sequences)
        self._release.atexit = False

    @override
    def document(self, row: int, length: int) -> LlamaDocument:
        self.context.cut(self.sequences[row], length)
        return LlamaDocument(length, self.context.save(self.sequences[row]))


class LlamaLogits(RowLogits):
    """RowLogits of llama.cpp: logits [rows, vocabulary], and `hidden` [rows, size] if requested."""

    def __init__(
        self, logits: NDArray[np.float32], hidden: NDArray[np.float32] | None = None
    ) -> None:
        self._logits, self._hidden = logits, hidden

    @override
    def mixed(self, log_weights: NDArray[np.float32]) -> NDArray[np.float32]:
        exponents, sums = self._exponents
        factors = np.exp(log_weights) / sums
        if len(factors) == 1:
            return np.asarray(exponents[0] * factors[0])
        # Not a product of matrices, whose order of summation depends on the library's threads.
        return np.asarray((exponents * factors[:, None]).sum(axis=0))

    @override
    def log_probabilities(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        _, sums = self._exponents
        highest = self._logits.max(axis=1)
        found = np.take(self._logits, tokens, axis=1)
        return np.asarray(found - (highest + np.log(sums))[:, None])

    @override
    def probability(self, token: int) -> NDArray[np.float64]:
        exponents, sums = self._exponents
        return exponents[:, token].astype(np.float64) / sums

    @override
    def hidden(self) -> NDArray[np.float32]:
        if self._hidden is None:
            raise ModelError("no hidden states were asked for")
        return self._hidden

    @override
    def copy(self) -> "LlamaLogits":
        return LlamaLogits(self._logits.copy(), None if self._hidden is None else self.hidden())

    @cached_property
    def _exponents(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return exp(logits - their maximum) [rows, vocabulary], and its sums [rows]."""
        exponents = self._logits - self._logits.max(axis=1, keepdims=True)
        np.exp(exponents, out=exponents)
        return exponents, exponents.sum(axis=1)


class LlamaBackend(Backend):
    """The Backend that runs a GGUF file with llama.cpp. Make one with `load_model`."""

    def __init__(self, contexts: Contexts, info: ModelInfo, tokenizer: LlamaTokenizer) -> None:
        self.info, self.tokenizer, self.pool = info, tokenizer, contexts.pool
        self._contexts = contexts

    @override
    def load(self, arrays: Mapping[str, NDArray[Any]]) -> Document:
        if arrays.keys() != {"length", "state"} or arrays["length"].shape != (2,):
            raise ModelError("the arrays are no document of this model")
        form, length = arrays["length"].tolist()
        if form != _FORMAT:
            raise ModelError("the document was stored by another version")
        return LlamaDocument(length, arrays["state"])

    @override
    def empty(self) -> Document:
        return LlamaDocument(0, np.empty(0, np.uint8))

    @override
    def open(self, documents: Sequence[Document], capacity: int) -> LlamaRows:
        return LlamaRows(self._contexts, documents, capacity)

    @override
    def forward(self, feeds: Sequence[Feed]) -> Sequence[Sequence[RowLogits] | None]:
        results: dict[int, list[LlamaLogits] | None] = {}
        shared = defaultdict[object, list[int]](list)
        for number, feed in enumerate(feeds):
            rows = feed.rows
            for sequence, length in rows.places:
                rows.context.cut(sequence, length + feed.length)
            if feed.prompt:
                results[number] = self._read_alone(feed)
            else:  # if blocks are not exact, no text may depend on who shares its forward
                shared[rows.context if self.info.exact_blocks else number].append(number)
        for numbers in shared.values():
            # llama.cpp computes neighbouring sequences together only if they come in their order.
            numbers.sort(key=lambda number: feeds[number].rows.sequences[0])
            found = self._read_together([feeds[number] for number in numbers])
            results.update(zip(numbers, found, strict=True))
        return [
            None if feed.preemption.requested else results[number]
            for number, feed in enumerate(feeds)
        ]

    def _read_together(self, feeds: Sequence[Feed]) -> Sequence[list[LlamaLogits] | None]:
        """Read feeds of a context token by token, all rows of a token side by side."""
        batch, preemptions, hidden = list[Token](), list[Preemption](), False
        for feed in feeds:
            batch += _tokens(feed, feed.rows.places)
            preemptions.append(feed.preemption)
            hidden |= feed.hidden
        most = self.info.exact_tokens or LARGEST_FORWARD
        if len(feeds) == 1:  # whole tokens, for llama.cpp reads rows of the same length together
            rows = len(feeds[0].rows.sequences)
            most = max(most // rows * rows, min(most, rows))
        found = feeds[0].rows.context.forward(batch, preemptions, most=most, hidden=hidden)
        if found is None:
            return [None] * len(feeds)
        results: list[list[LlamaLogits] | None] = []
        at = 0
        for feed in feeds:
            rows = len(feed.rows.sequences)
            starts = range(at, at + rows * (len(feed.tokens) if feed.every else 1), rows)
            results.append([LlamaLogits(*found.of(slice(start, start + rows))) for start in starts])
            at = starts.stop
        return results

    def _read_alone(self, feed: Feed) -> list[LlamaLogits] | None:
        """Read a prompt row by row in the largest pieces: other bits, but always the same."""
        each: list[Outputs] = []
        for row in feed.rows.places:
            found = feed.rows.context.forward(
                _tokens(feed, [row]), [feed.preemption], most=LARGEST_FORWARD, hidden=feed.hidden
            )
            if found is None:
                return None
            each.append(found)
        logits = np.stack([found.logits for found in each], axis=1)
        states = [found.hidden for found in each if found.hidden is not None]
        whole = Outputs(logits, np.stack(states, axis=1) if states else None)
        return [LlamaLogits(*whole.of(at)) for at in range(len(logits))]


def _tokens(feed: Feed, rows: Iterable[tuple[int, int]]) -> list[Token]:
    """Return the tokens of a feed in some of its `places`, all rows of a token side by side."""
    last = len(feed.tokens) - 1
    return [
        Token(token, length + feed.length + place, sequence, feed.every or place == last)
        for place, token in enumerate(feed.tokens)
        for sequence, length in rows
    ]


def load_model(
    path: Path, threads: int | None = None, adapter: Path | None = None, library: Path | None = None
) -> LlamaBackend:
    """Load the decoder-only model of a GGUF file.

    Args:
        threads: the number of CPU threads; by default `usual_threads()`.
        adapter: a LoRA of the model: a GGUF file, or a directory as PEFT writes it.
        library: the file of llama.cpp's library; by default that of an installed package.

    Raises ModelError if llama.cpp is missing or cannot load the file or the adapter, or if the
    model is no decoder or keeps a recurrent state, which cannot be rolled back.
    """
    threads = usual_threads() if threads is None else threads
    model = LlamaModel(load_library(library), path)
    model.check_decoder()
    tokenizer, weights, lora = LlamaTokenizer(model), fingerprint(path), 0
    if adapter is not None:
        file = adapter_file(model, adapter)
        lora = model.load_adapter(file)
        weights = hashlib.sha256(f"{weights}\n{fingerprint(file)}".encode()).hexdigest()
    found = exactness(model, threads, lora, weights)
    info = ModelInfo(
        parameters=model.parameters,
        fingerprint=weights,
        tokenizer_fingerprint=tokenizer.fingerprint,
        stop_tokens=tokenizer.stops,
        vocabulary=model.vocabulary,
        context_length=model.context_length,
        device="gpu" if model.library.supports_gpu_offload() else "cpu",
        device_memory=None,
        dtype=model.dtype,
        version=f"{model.library.name} {_FORMAT}",
        engine=f"llama.cpp of {model.library.name} ({model.library.instructions})",
        exact_blocks=found.tokens > 0,
        exact_tokens=found.tokens or None,
        single_from=found.single_from,
        prompt_piece=LARGEST_FORWARD,
        finetune=model.metadata("general.finetune") or model.metadata("general.name"),
    )
    return LlamaBackend(Contexts(model, threads, lora, found), info, tokenizer)
