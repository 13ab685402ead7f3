"""The llama.cpp contexts of a model. Each has rows of one length, so short rows take less memory.

A context is made when rows need it, and freed if none of its rows is in use when others are opened.
No context grows: its bytes are reserved in a KvPool before it is made.
"""

from contextlib import suppress
from functools import partial
from mmap import mmap

from dragonrt.backends.llama_cpp.context import LARGEST_FORWARD, Context
from dragonrt.backends.llama_cpp.library import LlamaModel
from dragonrt.backends.llama_cpp.self_test import Exactness
from dragonrt.backends.resources import RETRY_S, KvPool
from dragonrt.errors import ModelError
from dragonrt.wire.reasons import BusyError

MOST_SEQUENCES = 256
"""The most that llama.cpp manages in a context (LLAMA_MAX_SEQ)."""

_FEWEST_SEQUENCES, _FEWEST_CELLS = 4, 512
_FIXED_SEQUENCES = 16
"""Sequences of a model with sliding windows: the states of its two caches fit no other number."""
_PADDING = 256  # llama.cpp's unit of cells
_LAYER_BYTES = 64
"""Measured: what a forward takes beside its outputs, by tokens and hidden size."""
_SPARE = 4  # times the bytes of a forward: what is reserved and not used


class Contexts:
    """Makes, shares and frees the llama.cpp contexts of one model. One thread uses it."""

    def __init__(self, model: LlamaModel, threads: int, adapter: int, found: Exactness) -> None:
        """`found` is of this model, with a LoRA (0: none)."""
        self.pool = KvPool()
        self._model, self._kv_bytes, single_from = model, found.bytes, found.single_from
        self._make = partial(Context, model, threads, adapter=adapter, single_from=single_from)
        # llama.cpp computes outputs in one buffer, and copies them into another.
        self._forward_bytes = 2 * 4 * (found.tokens or LARGEST_FORWARD) * model.vocabulary
        self._forward_bytes += _LAYER_BYTES * LARGEST_FORWARD * model.hidden_size
        self._contexts: dict[Context, int] = {}
        """Each with the cells that it reserved for a row that is moved or undone."""

    def open(self, rows: int, cells: int) -> tuple[Context, range]:
        """Reserve `rows` empty sequences of one context, each with room for `cells` tokens.

        Returns the context and their numbers. BusyError: no memory now. ModelError: never enough.
        """
        most = _FIXED_SEQUENCES if self._model.has_windows else MOST_SEQUENCES
        if rows > most:
            raise ModelError(
                f"llama.cpp runs this model with at most {most} documents at a time: lower "
                "--documents-per-side"
            )
        longest = self._model.context_length
        length = max(_FEWEST_CELLS, cells, min(1 << (cells - 1).bit_length(), longest))
        found = self._vacant(rows, length, length)
        self._contexts = {each: more for each, more in self._contexts.items() if each.used()}
        if found is not None:
            return found
        beside = sum(each.sequences for each in self._contexts if each.cells == length)
        with suppress(BusyError, ModelError):
            return self._made(rows, max(_FEWEST_SEQUENCES, min(beside, _FIXED_SEQUENCES)), length)
        with suppress(BusyError, ModelError):
            return self._made(rows, rows, length)
        found = self._vacant(rows, cells, max(length, longest))
        return found or self._made(rows, rows, -(-cells // _PADDING) * _PADDING)

    def _vacant(self, rows: int, least: int, most: int) -> tuple[Context, range] | None:
        """Return unused rows of a context with so many cells."""
        for context in self._contexts:
            if least <= context.cells <= most and (found := context.open(rows)) is not None:
                return context, found
        return None

    def _made(self, rows: int, sequences: int, cells: int) -> tuple[Context, range]:
        """Return the first rows of a new context."""
        sequences = _FIXED_SEQUENCES if self._model.has_windows else max(rows, sequences)
        # One row at a time is moved or undone, and then there twice.
        longest = max([cells, *(each.cells for each in self._contexts)])
        more = max(0, longest - sum(self._contexts.values()))
        size = (sequences * cells + more) * self._kv_bytes + self._forward_bytes
        room = self.pool.room(size)
        try:  # llama.cpp aborts the process if it lacks a little
            mmap(-1, size + _SPARE * self._forward_bytes).close()
        except OSError:
            text = f"this side has no {size / 1e6:,.1f} MB of memory left for the question"
            raise BusyError(text, RETRY_S) from None
        context = self._make(sequences, cells, room=room)
        self._contexts[context] = more
        found = context.open(rows)
        assert found is not None  # it is new
        return context, found
