"""Read tokens in a llama.cpp context: sequences with their KV, saved states, and forwards.

All sequences of a context have room for the same number of tokens (cells). A sequence is cut before
it is written, so that what a stopped forward left behind is overwritten.
"""

import ctypes
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.backend import Preemption
from dragonrt.backends.llama_cpp.library import LIBC, Batch, LlamaModel
from dragonrt.backends.resources import RETRY_S, Room
from dragonrt.errors import ModelError
from dragonrt.wire.reasons import BusyError

LARGEST_FORWARD = 128
"""The most tokens of one forward: those of a piece of a document."""
_ABORTED = 2  # llama_decode's result

Floats = NDArray[np.float32]
State = NDArray[np.uint8]
"""A saved sequence, as of a context of one sequence (see `portable`)."""
_HEADER, _WORD = 8, 4  # bytes of a state before the number of sequences, and of a number


class Token(NamedTuple):
    """A token to read at a `position` of a `sequence`; `is_wanted`: return the outputs after it."""

    token: int
    position: int
    sequence: int
    is_wanted: bool


class Outputs(NamedTuple):
    """The logits after tokens [tokens, vocabulary]; `hidden` states [tokens, size] if requested."""

    logits: Floats
    hidden: Floats | None

    def of(self, places: slice | int) -> tuple[Floats, Floats | None]:
        return self.logits[places], None if self.hidden is None else self.hidden[places]


class Context:
    """A llama.cpp context: numbered sequences of tokens with their KV, which forwards extend.

    Attributes:
        single_from: the position from which a token that llama.cpp reads alone gets other last
            bits, so `forward` adds a second token or uses one thread; None: no position.
    """

    def __init__(
        self,
        model: LlamaModel,
        threads: int,
        sequences: int,
        cells: int,
        adapter: int = 0,
        single_from: int | None = None,
        room: Room | None = None,
    ) -> None:
        """Allocate `cells` for each sequence, counted in `room`, with a LoRA. Raises BusyError."""
        self._model, self._library, self._room = model, model.library, room
        self.threads, self.sequences, self.cells = threads, sequences, cells
        self.single_from = single_from
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
        weakref.finalize(self, model.free, self._context).atexit = False
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
        self._struct = Batch(0, self._tokens.ctypes.data, None, *pointers)
        stop = ctypes.cast(LIBC.strlen, ctypes.c_void_p)
        self._library.set_abort_callback(self._context, stop, ctypes.addressof(self._stop))
        if adapter:
            adapters, scales = (ctypes.c_void_p * 1)(adapter), (ctypes.c_float * 1)(1.0)
            self._library.set_adapters_lora(self._context, adapters, 1, scales)

    def used(self) -> set[int]:
        while self._free:
            self._used.difference_update(self._free.pop())
        return self._used

    def open(self, rows: int) -> range | None:
        """Reserve `rows` empty sequences with consecutive numbers; None if too few are free."""
        used, places = self.used(), range(self.sequences - rows + 1)
        for first in places if rows > 1 else reversed(places):  # single ones leave no gaps
            if used.isdisjoint(found := range(first, first + rows)):
                used.update(found)
                for each in found:
                    self._empty(each)
                return found
        return None

    def release(self, sequences: range) -> None:
        """Free these sequences for a later `open`. Call from any thread."""
        self._free.append(sequences)

    def cut(self, sequence: int, length: int) -> None:
        """Remove all tokens of a sequence except the first `length`."""
        self._library.memory_seq_rm(self._memory, sequence, length, -1)

    def save(self, sequence: int) -> State:
        """Return the KV of a sequence as bytes, for `load` in any context of the same model."""
        state = self._state(sequence)
        return portable(state, sequence, self.sequences) if self._is_portable else state

    def load(self, sequence: int, state: State) -> None:
        """Replace a sequence by one that was saved. Raises ModelError if of another model."""
        self._set_state(sequence, native(state, self.sequences) if self._is_portable else state)

    def stop_if_preempted(self) -> None:
        """Stop the running forward if all its preemptions are set. Any thread may call it."""
        with self._stopping:
            if self._running and all(each.requested for each in self._running):
                self._stop[0] = b"\1"

    def forward(
        self, batch: Sequence[Token], preemptions: Sequence[Preemption], *, most: int, hidden: bool
    ) -> Outputs | None:
        """Read `batch` in forwards of at most `most` tokens; return Outputs of the wanted tokens.

        If all `preemptions` are set, the batch is removed from the sequences, and the result is
        None. Hidden states are computed only if `hidden`.
        """
        if hidden != self._is_hidden:
            self._library.set_embeddings(self._context, hidden)
            self._is_hidden = hidden
        found: list[Outputs] = []
        order: list[int] = []
        for places in self._parts(batch, most):
            part = self._decode([batch[place] for place in places], preemptions)
            if part is None:
                self._pack(batch)
                return None
            found.append(part)
            order += places
        if len(found) == 1:
            return found[0]
        logits, states = zip(*found, strict=True)
        sort = np.argsort([place for place in order if batch[place].is_wanted])
        return Outputs(
            np.concatenate(logits)[sort], np.concatenate(states)[sort] if hidden else None
        )

    def _parts(self, batch: Sequence[Token], most: int) -> Iterator[Sequence[int]]:
        """Yield the places of the tokens of each forward, lone ones in forwards of their own."""
        for start in range(0, len(batch), most):
            places = range(start, min(start + most, len(batch)))
            alone: list[int] = []
            if (least := self.single_from) is not None and any(t.position >= least for t in batch):
                found = lone_token_indices([batch[place].sequence for place in places])
                alone = [p + start for p in found if batch[p + start].position >= least]
            if rest := [place for place in places if place not in alone] if alone else places:
                yield rest
            yield from ([place] for place in alone)

    def _decode(self, batch: Sequence[Token], preemptions: Sequence[Preemption]) -> Outputs | None:
        """Run one forward; return copies of its outputs, or None if it was stopped."""
        tokens, positions, sequences, wanted = map(list, zip(*batch, strict=True))
        count = len(batch)
        self._tokens[:count], self._positions[:count] = tokens, positions
        self._owners[:count] = sequences
        last = positions[0]
        if is_lone := count == 1 and self.single_from is not None and last >= self.single_from:
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
            self.cut(sequences[0], last + 1)
        if code == _ABORTED:
            return None
        if code != 0:
            raise ModelError(
                f"llama.cpp could not compute {count} tokens (code {code}): try another library"
            )
        if not self._is_hidden:
            logits = self._outputs("logits", sum(wanted), self._model.vocabulary)
            return Outputs(logits.copy(), None)
        # With hidden states on, llama.cpp computes the outputs of all tokens.
        logits = self._outputs("logits", count, self._model.vocabulary)
        states = self._outputs("embeddings", count, self._model.hidden_size)
        return Outputs(logits[wanted], states[wanted])

    def _outputs(self, name: str, rows: int, columns: int) -> Floats:
        if not rows:
            return np.empty((0, columns), np.float32)
        found = getattr(self._library, f"get_{name}")(self._context)
        return np.ctypeslib.as_array(found, (rows, columns))

    def _pack(self, batch: Sequence[Token]) -> None:
        """Undo a stopped forward.

        It can leave a gap among the cells of a row. A later token would fill it, and sums run in
        another order, with other last bits. So the states are saved and loaded.
        """
        for sequence in dict.fromkeys(each.sequence for each in batch):
            self.cut(sequence, min(each.position for each in batch if each.sequence == sequence))
            self._set_state(sequence, self._state(sequence))

    def _state(self, sequence: int) -> State:
        state = np.empty(self._library.state_seq_get_size(self._context, sequence), np.uint8)
        data = state.ctypes.data
        size = self._library.state_seq_get_data(self._context, data, state.size, sequence)
        return state[:size]

    def _empty(self, sequence: int) -> None:
        """Remove all tokens of a sequence, and have the next one put into the first cell.

        A stopped forward leaves the place where llama.cpp looks for cells at another sequence's
        (`llama_kv_cache::prepare`). To shift no token at all sets it to the first one; llama.cpp
        aborts if positions have planes.
        """
        self.cut(sequence, 0)
        if not self._model.has_planes:
            self._library.memory_seq_add(self._memory, sequence, 0, -1, 1)

    def _set_state(self, sequence: int, state: State) -> None:
        self._empty(sequence)
        data = state.ctypes.data
        if not self._library.state_seq_set_data(self._context, data, state.size, sequence):
            raise ModelError("the stored KV of a document is another model's: delete it")


def portable(state: State, sequence: int, sequences: int) -> State:
    """Return a saved state in a form that `native` can turn into one for any context of the model.

    llama.cpp loads a state only into a context with as many sequences as the one that saved it
    (`sequences`). It writes that number, then a zero for each sequence but the saved `sequence`.
    This function removes both. Raises ModelError if llama.cpp writes states in another way.
    """
    first = _HEADER + _WORD
    cells, end = first + _WORD * sequence, state.size - _WORD * (sequences - 1 - sequence)
    is_known = np.array_equal(state[_HEADER:first], _words(sequences))
    if not is_known or state[first:cells].any() or state[end:].any():
        raise ModelError("this llama.cpp writes states in an unknown form: use another version")
    return np.concatenate([state[:_HEADER], _words(1), state[cells:end]])


def native(state: State, sequences: int) -> State:
    """Return a `portable` state as a context with `sequences` loads it. ModelError if damaged."""
    if not np.array_equal(state[_HEADER : _HEADER + _WORD], _words(1)):
        raise ModelError("the stored KV of a document is damaged: delete it")
    cells, others = state[_HEADER + _WORD :], [0] * (sequences - 1)
    return np.concatenate([state[:_HEADER], _words(sequences), cells, _words(*others)])


def _words(*numbers: int) -> State:
    return np.array(numbers, "<u4").view(np.uint8)


def lone_token_indices(sequences: Sequence[int]) -> list[int]:
    """Return which tokens of a batch llama.cpp would compute alone, as indices for `forward`.

    `forward` reads these in another way: the CPU kernel for one token of one long row gives last
    bits that depend on the number of threads (`use_split_kv_path` in ggml-cpu/ops.cpp).
    `sequences` has the sequence number of each token. llama.cpp divides a batch into parts of
    equally many tokens of sequences with consecutive numbers (`llama_batch_allocr::split_equal`).
    Only the last token of a sequence can be alone.
    """
    left: dict[int, list[int]] = {}
    for place, sequence in enumerate(sequences):
        left.setdefault(sequence, []).append(place)
    alone = []
    while left:
        first = min(left, key=lambda sequence: left[sequence][0])
        chosen = [first]
        for place in sorted(place for places in left.values() for place in places):
            if sequences[place] == chosen[-1] + 1:
                chosen.append(sequences[place])
        size = min(len(left[sequence]) for sequence in chosen)
        if len(chosen) == size == 1:
            alone.append(left[first][0])
        for sequence in chosen:
            del left[sequence][:size]
            if not left[sequence]:
                del left[sequence]
    return alone
