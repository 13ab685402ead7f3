"""A context of llama.cpp: sequences of tokens with their KV, states of sequences, and forwards.

Every sequence has as many cells as any other. A sequence is cut before it is written, so that what
a forward left behind is overwritten. If a context is too small, its states move into a larger one.
"""

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.backend import Preemption
from dragonrt.backends.llama_cpp.library import Batch as LlamaBatch
from dragonrt.backends.llama_cpp.lone import lone_places
from dragonrt.backends.llama_cpp.model import LlamaModel
from dragonrt.backends.llama_cpp.states import State, native, portable
from dragonrt.errors import ModelError
from dragonrt.wire.reasons import BusyError

LARGEST_FORWARD = 128
"""The most tokens of one forward: those of a piece of a document."""
MOST_SEQUENCES = 256
"""The most that llama.cpp manages in a context (LLAMA_MAX_SEQ)."""

_FEWEST_SEQUENCES, _FEWEST_CELLS = 4, 512
_FIXED_SEQUENCES = 16
"""Sequences of a model with sliding windows: the states of its two caches fit no other number."""
_RETRY_S = 1.0
_ABORTED = 2  # llama_decode's result
_LIBC = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)

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
    """Sequences of one model, with their KV. One thread uses it, except `stop_if_preempted`.

    Attributes:
        lone_from: the position from which a forward of one token gets the bits of a larger forward
            only if it runs on one thread or beside a second token; None: it always gets them.
    """

    def __init__(self, model: LlamaModel, threads: int) -> None:
        """Make room for a few sequences."""
        self._model, self._library, self.threads = model, model.library, threads
        self.lone_from: int | None = None
        self._used: set[int] = set()
        self._free: list[range] = []  # given back in any thread
        self._adapter = 0
        self._is_portable = not model.has_windows
        self._fewest = _FEWEST_SEQUENCES if self._is_portable else _FIXED_SEQUENCES
        self._most = MOST_SEQUENCES if self._is_portable else _FIXED_SEQUENCES
        self._least = self._fewest * _FEWEST_CELLS
        self._context = self.sequences = self.cells = 0
        self._is_hidden = False
        self._free_context: Callable[[], object] = lambda: None
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
        self._resize(self._fewest, _FEWEST_CELLS)

    def adapt(self, adapter: int) -> None:
        """Apply a LoRA, loaded for this model, from now on."""
        self._adapter = adapter
        self._apply_adapter()

    def open(self, rows: int, cells: int) -> range:
        """Return unused neighbouring sequences, empty, with room for `cells` tokens each.

        Raises BusyError if there are too many in use, ModelError if there are never so many.
        """
        if rows > self._most:
            raise ModelError(
                f"llama.cpp runs this model with at most {self._most} documents at a time: lower "
                "--documents-per-side"
            )
        while self._free:
            self._used.difference_update(self._free.pop())
        if not self._used and max(self.sequences * self.cells, rows * cells) > self._least:
            self._resize(max(rows, self._fewest), max(cells, _FEWEST_CELLS))
        first = next(n for n in range(self._most + 1) if not self._used & {*range(n, n + rows)})
        if first + rows > self._most:
            raise BusyError("too many answers are under way for this side's model", _RETRY_S)
        self.reserve(cells, first + rows)
        found = range(first, first + rows)
        self._used.update(found)
        for each in found:
            self.cut(each, 0)
        return found

    def release(self, sequences: range) -> None:
        """Give sequences back. Call from any thread."""
        self._free.append(sequences)

    def reserve(self, cells: int, sequences: int = 0) -> None:
        """Make room for so many tokens in each of at least so many sequences."""
        if cells > self.cells or sequences > self.sequences:
            more = self.sequences if sequences <= self.sequences else 2 * self.sequences
            longer = self.cells if cells <= self.cells else 2 * self.cells
            self._resize(
                min(max(sequences, more), self._most),
                max(cells, min(longer, self._model.context_length)),
            )

    def cut(self, sequence: int, length: int) -> None:
        """Remove all tokens of a sequence but the first `length`."""
        self._library.memory_seq_rm(self._memory, sequence, length, -1)

    def save(self, sequence: int) -> State:
        """Return the KV of a sequence, for any context of this model."""
        size = self._library.state_seq_get_size(self._context, sequence)
        state = np.empty(size, np.uint8)
        data = state.ctypes.data
        size = self._library.state_seq_get_data(self._context, data, size, sequence)
        state = state[:size]
        return portable(state, sequence, self.sequences) if self._is_portable else state

    def load(self, sequence: int, state: State) -> None:
        """Set the KV of a sequence. Raises ModelError if it is another model's."""
        self.cut(sequence, 0)
        given = native(state, self.sequences) if self._is_portable else state
        data = given.ctypes.data
        if not self._library.state_seq_set_data(self._context, data, given.size, sequence):
            raise ModelError("the stored KV of a document is another model's: delete it")

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
            self.load(sequence, self.save(sequence))

    def _resize(self, sequences: int, cells: int) -> None:
        """Move all sequences in use into a context of another size."""
        states = {each: self.save(each) for each in self._used} if self._context else {}
        self._free_context()
        options = self._library.context_default_params()
        options.n_ctx, options.n_seq_max = sequences * cells, sequences
        options.n_ubatch = LARGEST_FORWARD
        options.n_batch = max(LARGEST_FORWARD, sequences)  # llama.cpp aborts if there are more
        context = self._library.init_from_model(self._model.pointer, options)
        if not context:
            raise ModelError(
                f"llama.cpp has no memory for {sequences} rows of {cells} tokens: ask for fewer "
                "documents or shorter answers"
            )
        self._context, self.sequences, self.cells = context, sequences, cells
        freed = weakref.finalize(self, self._library.free, context)
        freed.atexit, self._free_context = False, freed
        self._memory = self._library.get_memory(context)
        self._library.set_n_threads(context, self.threads, self.threads)
        stop = ctypes.cast(_LIBC.strlen, ctypes.c_void_p)
        self._library.set_abort_callback(context, stop, ctypes.addressof(self._stop))
        self._is_hidden = False
        self._apply_adapter()
        for sequence, state in states.items():
            self.load(sequence, state)

    def _apply_adapter(self) -> None:
        if not self._adapter:
            return
        pointer, number = ctypes.c_void_p, ctypes.c_float
        several = (pointer, ctypes.POINTER(pointer), ctypes.c_size_t, ctypes.POINTER(number))
        library, found = self._library, ctypes.c_int32
        if (apply := library.optional("llama_set_adapters_lora", found, *several)) is not None:
            adapters, scales = (pointer * 1)(self._adapter), (number * 1)(1.0)
            apply(self._context, adapters, 1, scales)
        else:  # older versions
            one = library.optional("llama_set_adapter_lora", found, pointer, pointer, number)
            one(self._context, self._adapter, 1.0)
