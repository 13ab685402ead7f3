"""What forwards are measured beside: a bare loop over llama.cpp, and transformers."""

import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt import bundled
from dragonrt.backends.llama_cpp.library import Batch, LlamaModel
from dragonrt.backends.llama_cpp.model_file import MADE, base_file
from dragonrt.errors import DragonError


def model_path(name: str) -> Path:
    """Return the file of a model that is bundled or made here, otherwise the name as a path."""
    if name in MADE:
        return MADE[name]()
    return bundled.model_path(name) if name in bundled.models() else Path(name)


def transformers_model(name: str, *, adapted: bool = True) -> Any:
    """Load a GGUF file, a directory or a hub id, in bfloat16; smollm2 with its adapter."""
    from transformers import AutoModelForCausalLM

    path = model_path(name) if adapted or name != bundled.SMOLLM2 else base_file()
    if not path.is_file():
        return AutoModelForCausalLM.from_pretrained(path if path.is_dir() else name).bfloat16()
    loaded: Any = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name)
    del loaded.config.quantization_config  # the values are plain numbers now
    plain = type(loaded)(loaded.config).bfloat16().eval()
    plain.load_state_dict(loaded.state_dict())
    return plain


class BareLoop:
    """Rows of a model in llama.cpp itself, without the contract of a backend."""

    def __init__(self, model: LlamaModel, threads: int, rows: int, tokens: int) -> None:
        """Make room for so many tokens in each row."""
        self._library, self._vocabulary, self._rows = model.library, model.vocabulary, rows
        options = self._library.context_default_params()
        options.n_ctx = options.n_batch = rows * tokens
        options.n_seq_max = rows
        self._context = self._library.init_from_model(model.pointer, options)
        weakref.finalize(self, self._library.free, self._context)
        self._library.set_n_threads(self._context, threads, threads)
        self._memory = self._library.get_memory(self._context)

    def extend(self, tokens: Sequence[int], length: int, *, every: bool) -> int:
        """Append tokens to the first `length` of each row; return the likeliest after the last.

        Logits are read after every token, or after the last of each row.
        """
        for row in range(self._rows):
            self._library.memory_seq_rm(self._memory, row, length, -1)
        count = self._rows * len(tokens)
        ids = np.tile(np.array(tokens, np.int32), self._rows)
        positions = np.tile(length + np.arange(len(tokens), dtype=np.int32), self._rows)
        owners = np.repeat(np.arange(self._rows, dtype=np.int32), len(tokens))
        places = owners.ctypes.data + owners.itemsize * np.arange(count)
        ones, wanted = np.ones(count, np.int32), np.full(count, every, np.int8)
        wanted[len(tokens) - 1 :: len(tokens)] = 1
        arrays = [each.ctypes.data for each in (positions, ones, places, wanted)]
        if self._library.decode(self._context, Batch(count, ids.ctypes.data, None, *arrays)):
            raise DragonError("llama.cpp has no room for these tokens: take fewer")
        shape = int(wanted.sum()), self._vocabulary
        logits = np.ctypeslib.as_array(self._library.get_logits(self._context), shape).copy()
        return int(logits[-1].argmax())
