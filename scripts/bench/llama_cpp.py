"""A bare loop over llama.cpp: what its own forward takes, without the contract of a backend."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dragonrt.backends.llama_cpp.library import Batch, load_library
from dragonrt.errors import DragonError


class LlamaCpp:
    """A model in a context, as long as the process lives."""

    def __init__(
        self, file: Path, rows: int, tokens: int, threads: int, library_file: Path | None
    ) -> None:
        """Make room for so many tokens in each row."""
        self._library = library = load_library(library_file)
        model = library.model_load_from_file(bytes(file), library.model_default_params())
        self._vocabulary = library.vocab_n_tokens(library.model_get_vocab(model))
        options = library.context_default_params()
        options.n_ctx = options.n_batch = rows * tokens
        options.n_seq_max = rows
        self._context = library.init_from_model(model, options)
        library.set_n_threads(self._context, threads, threads)

    def clear(self) -> None:
        """Forget all rows."""
        self._length = 0
        self._library.memory_clear(self._library.get_memory(self._context), True)

    def extend(self, tokens: Sequence[int], rows: int, *, every: bool = True) -> int:
        """Append tokens to each of so many rows; return the likeliest one after the last.

        Logits are computed of the last token of each row, or of every one.
        """
        count = rows * len(tokens)
        ids = np.tile(np.array(tokens, np.int32), rows)
        positions = np.tile(self._length + np.arange(len(tokens), dtype=np.int32), rows)
        owners = np.repeat(np.arange(rows, dtype=np.int32), len(tokens))
        places = owners.ctypes.data + owners.itemsize * np.arange(count)
        ones, wanted = np.ones(count, np.int32), np.full(count, every, np.int8)
        wanted[len(tokens) - 1 :: len(tokens)] = 1
        arrays = [each.ctypes.data for each in (positions, ones, places, wanted)]
        if self._library.decode(self._context, Batch(count, ids.ctypes.data, None, *arrays)):
            raise DragonError("llama.cpp has no room for these tokens: take fewer")
        self._length += len(tokens)
        logits = self._library.get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(logits, (self._vocabulary,)).argmax())
