"""A context of llama.cpp: sequences of tokens with their KV, states of sequences, and forwards.

Every sequence has as many cells as any other. A sequence is cut before it is written, so that what
a forward left behind is overwritten.
"""

import ctypes
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.backend import Preemption
from dragonrt.backends.kv_pool import RETRY_S, Room
from dragonrt.backends.llama_cpp.library import Batch as LlamaBatch
from dragonrt.backends.llama_cpp.library import Library
from dragonrt.backends.llama_cpp.lone import lone_places
from dragonrt.backends.llama_cpp.model import LlamaModel
from dragonrt.backends.llama_cpp.states import State, native, portable
from dragonrt.errors import ModelError
from dragonrt.wire.reasons import BusyError

LARGEST_FORWARD = 128
"""The most tokens of one forward: those of a piece of a document."""
_ABORTED = 2  # llama_decode's result
_LIBC = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
_trim = getattr(_LIBC, "malloc_trim", lambda _: 0)
"""Gives the system what is freed: glibc keeps it, though a context of another size needs more."""

Floats = NDArray[np.float32]


class Batch:
    """The tokens of a forward: of each its position, its sequence, and whether it has outputs."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.positions: list[int] = []
        self.sequences: list[int] = []
        self.wanted: list[bool] = []

    def add(self, token: int, position: int, sequence: int, is_wanted: bool) -> None:
        """Append a token."""
        self.tokens.append(token)
        self.positions.append(position)
        self.sequences.append(sequence)
        self.wanted.append(is_wanted)


@dataclass(frozen=True, slots=True)
class Outputs:
    """Logits [tokens, vocabulary] and, if wanted, inputs of the output layer [tokens, size]."""

    logits: Floats
    hidden: Floats | None

    def of(self, places: slice) -> tuple[Floats, Floats | None]:
        """Return those of some tokens."""
        return self.logits[places], None if self.hidden is None else self.hidden[places]


class Context:
    """Sequences of one model, with their KV. One thread uses it, except as said.

    Attributes:
        lone_from: the position from which a forward of one token gets the bits of a larger forward
            only if it runs on one thread or beside a second token; None: it always gets them.
    """

    def __init__(
        self,
        model: LlamaModel,
        threads: int,
        sequences: int,
        cells: int,
        adapter: int = 0,
        lone_from: int | None = None,
        room: Room | None = None,
    ) -> None:
        """Allocate `cells` for each sequence, with a LoRA of the model. Raises BusyError.

        `room` is what it takes of a KvPool, if it is counted there.
        """
        self._model, self._library, self._room = model, model.library, room
        self.threads, self.sequences, self.cells = threads, sequences, cells
        self.lone_from = lone_from
        self._used: set[int] = set()
        self._free: list[range] = []  # given back in any thread
        self._is_portable, self._is_hidden = not model.has_windows, False
        options = self._library.context_default_params()
        options.n_ctx, options.n_seq_max = sequences * cells, sequences
        options.n_ubatch = LARGEST_FORWARD
        options.n_batch = max(LARGEST_FORWARD, sequences)  # llama.cpp aborts if there are more
        self._context: int = self._library.init_from_model(model.pointer, options)
        if not self._context:
            text = f"there is no memory for {sequences} rows of {cells} tokens"
            raise BusyError(text, RETRY_S)
        weakref.finalize(self, _free, self._library, self._context).atexit = False
        self._memory = self._library.get_memory(self._context)
        self._library.set_n_threads(self._context, threads, threads)
        # The abort callback is a C function that needs no interpreter: `strlen` of these two bytes.
        self._stop = ctypes.create_string_buffer(2)
        self._stopping = threading.RLock()
        self._running: Sequence[Preemption] = ()
        count = LARGEST_FORWARD
        self._tokens, self._positions = np.zeros((2, count), np.int32)
        self._owners, self._ones = np.zeros(count, np.int32), np.ones(count, np.int32)
        self._wanted = np.zeros(count, np.int8)
        self._places = (self._owners.ctypes.data + 4 * np.arange(count)).astype(np.uintp)
        parts = (self._positions, self._ones, self._places, self._wanted)
        pointers = [each.ctypes.data for each in parts]
        self._struct = LlamaBatch(0, self._tokens.ctypes.data, None, *pointers)
        stop = ctypes.cast(_LIBC.strlen, ctypes.c_void_p)
        self._library.set_abort_callback(self._context, stop, ctypes.addressof(self._stop))
        if adapter:
            self._adapt(adapter)

    def used(self) -> set[int]:
        """Return the sequences in use."""
        while self._free:
            self._used.difference_update(self._free.pop())
        return self._used

    def open(self, rows: int) -> range | None:
        """Return unused neighbouring sequences, empty; None if there are not so many."""
        used, places = self.used(), range(self.sequences - rows + 1)
        for first in places if rows > 1 else reversed(places):  # single ones leave no gaps
            if used.isdisjoint(found := range(first, first + rows)):
                used.update(found)
                for each in found:
                    self.cut(each, 0)
                return found
        return None

    def release(self, sequences: range) -> None:
        """Give sequences back. Call from any thread."""
        self._free.append(sequences)

    def cut(self, sequence: int, length: int) -> None:
        """Remove all tokens of a sequence but the first `length`."""
        self._library.memory_seq_rm(self._memory, sequence, length, -1)

    def save(self, sequence: int) -> State:
        """Return the KV of a sequence, for any context of this model."""
        state = self._state(sequence)
        return portable(state, sequence, self.sequences) if self._is_portable else state

    def load(self, sequence: int, state: State) -> None:
        """Set the KV of a sequence. Raises ModelError if it is another model's."""
        self._set_state(sequence, native(state, self.sequences) if self._is_portable else state)

    def stop_if_preempted(self) -> None:
        """Stop the forward under way if all that share it are preempted. Call from any thread."""
        with self._stopping:
            if self._running and all(each.requested for each in self._running):
                self._stop[0] = b"\1"

    def forward(
        self, batch: Batch, preemptions: Sequence[Preemption], *, most: int, hidden: bool
    ) -> Outputs | None:
        """Compute the KV of tokens, `most` at once; return what was wanted of them.

        Returns None if all preemptions ask to stop; then nothing of it is left. Hidden states are
        computed only if `hidden`.
        """
        if hidden != self._is_hidden:
            self._library.set_embeddings(self._context, hidden)
            self._is_hidden = hidden
        found: list[tuple[Floats, Floats | None]] = []
        order: list[int] = []
        for places in self._parts(batch, most):
            if (part := self._decode(batch, places, preemptions)) is None:
                self._pack(batch)
                return None
            found.append(part)
            order += [place for place in places if batch.wanted[place]]
        if len(found) == 1:
            return Outputs(*found[0])
        logits, states = zip(*found, strict=True)
        sort = np.argsort(order)
        return Outputs(
            np.concatenate(logits)[sort], np.concatenate(states)[sort] if hidden else None
        )

    def _parts(self, batch: Batch, most: int) -> Iterator[Sequence[int]]:
        """Yield the places of the tokens of each forward, lone ones in forwards of their own."""
        for start in range(0, len(batch.tokens), most):
            places = range(start, min(start + most, len(batch.tokens)))
            alone: list[int] = []
            if self.lone_from is not None and max(batch.positions) >= self.lone_from:
                found = lone_places(batch.sequences[places.start : places.stop])
                alone = [p + start for p in found if batch.positions[p + start] >= self.lone_from]
            if rest := [place for place in places if place not in alone]:
                yield rest
            yield from ([place] for place in alone)

    def _decode(
        self, batch: Batch, places: Sequence[int], preemptions: Sequence[Preemption]
    ) -> tuple[Floats, Floats | None] | None:
        """Run one forward; return copies of its outputs, or None if it was stopped."""
        wanted = [batch.wanted[place] for place in places]
        count = len(wanted)
        self._tokens[:count] = [batch.tokens[place] for place in places]
        self._positions[:count] = [batch.positions[place] for place in places]
        self._owners[:count] = [batch.sequences[place] for place in places]
        last = int(self._positions[0])
        if is_lone := count == 1 and self.lone_from is not None and last >= self.lone_from:
            # Two tokens on three threads and more are faster than one token on one thread.
            if self.threads > 2 and last + 1 < self.cells:
                count, wanted = 2, [*wanted, False]
                self._tokens[1], self._positions[1] = self._tokens[0], last + 1
                self._owners[1] = self._owners[0]
            else:
                self._library.set_n_threads(self._context, 1, 1)
        self._struct.n_tokens = count
        self._wanted[:count] = wanted
        self._running = preemptions
        for each in preemptions:
            each.watch(self.stop_if_preempted)
        self.stop_if_preempted()
        code: int = self._library.decode(self._context, self._struct)
        for each in preemptions:
            each.watch(None)
        with self._stopping:
            self._running = ()
            self._stop[0] = b"\0"
        if is_lone:
            self._library.set_n_threads(self._context, self.threads, self.threads)
            self.cut(batch.sequences[places[0]], last + 1)
        if code == _ABORTED:
            return None
        if code != 0:
            raise ModelError(
                f"llama.cpp could not compute {count} tokens (code {code}): try another library"
            )
        if not self._is_hidden:
            return self._outputs("logits", sum(wanted), self._model.vocabulary).copy(), None
        # With hidden states on, llama.cpp computes the outputs of all tokens.
        logits = self._outputs("logits", count, self._model.vocabulary)
        states = self._outputs("embeddings", count, self._model.hidden_size)
        return logits[wanted], states[wanted]

    def _outputs(self, name: str, rows: int, columns: int) -> Floats:
        if not rows:
            return np.empty((0, columns), np.float32)
        found = getattr(self._library, f"get_{name}")(self._context)
        return np.ctypeslib.as_array(found, (rows, columns))

    def _pack(self, batch: Batch) -> None:
        """Undo a stopped forward.

        It can leave a gap among the cells of a row. A later token would fill it, and sums run in
        another order, with other last bits. So the states are saved and loaded.
        """
        places = list(zip(batch.sequences, batch.positions, strict=True))
        for sequence in dict.fromkeys(batch.sequences):
            self.cut(sequence, min(at for of, at in places if of == sequence))
            self._set_state(sequence, self._state(sequence))

    def _state(self, sequence: int) -> State:
        state = np.empty(self._library.state_seq_get_size(self._context, sequence), np.uint8)
        data = state.ctypes.data
        size = self._library.state_seq_get_data(self._context, data, state.size, sequence)
        return state[:size]

    def _set_state(self, sequence: int, state: State) -> None:
        self.cut(sequence, 0)
        data = state.ctypes.data
        if not self._library.state_seq_set_data(self._context, data, state.size, sequence):
            raise ModelError("the stored KV of a document is another model's: delete it")

    def _adapt(self, adapter: int) -> None:
        """Apply a LoRA, loaded for this model."""
        pointer, number = ctypes.c_void_p, ctypes.c_float
        several = (pointer, ctypes.POINTER(pointer), ctypes.c_size_t, ctypes.POINTER(number))
        library, found = self._library, ctypes.c_int32
        if (apply := library.optional("llama_set_adapters_lora", found, *several)) is not None:
            adapters, scales = (pointer * 1)(adapter), (number * 1)(1.0)
            apply(self._context, adapters, 1, scales)
        else:  # older versions
            one = library.optional("llama_set_adapter_lora", found, pointer, pointer, number)
            one(self._context, adapter, 1.0)


def _free(library: Library, context: int) -> None:
    library.free(context)
    _trim(0)
