"""llama.cpp's forward over a GGUF file, by the C functions that the wheel `xllamacpp` exports.

Structures are passed as words: the places of their fields are those of the version of the extra.
"""

import ctypes
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt.errors import DragonError

_CELLS, _BATCH, _ROWS, _THREADS, _PROMPT_THREADS, _FLASH = 0, 1, 3, 7, 8, 13
"""Numbers among the options of a context."""


class _Options(ctypes.Structure):
    _fields_ = (("numbers", ctypes.c_int32 * 64),)


class _Batch(ctypes.Structure):
    _fields_ = (("words", ctypes.c_int64 * 7),)


_log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)


class LlamaCpp:
    """A model in a context of one thread with flash attention, as long as the process lives."""

    def __init__(self, file: Path, vocabulary: int, rows: int, tokens: int) -> None:
        """Make room for so many tokens in each row. Needs `library`."""
        self._library, self._vocabulary = ctypes.CDLL(library()), vocabulary
        self._call("log_set", None, _log, None)
        options = self._call("model_default_params", _Options)
        model = self._call("model_load_from_file", ctypes.c_void_p, bytes(file), options)
        numbers = (options := self._call("context_default_params", _Options)).numbers
        numbers[_CELLS] = numbers[_BATCH] = rows * tokens
        numbers[_ROWS] = rows
        numbers[_THREADS] = numbers[_PROMPT_THREADS] = numbers[_FLASH] = 1
        context = self._call("init_from_model", ctypes.c_void_p, ctypes.c_void_p(model), options)
        self._context = ctypes.c_void_p(context)

    def clear(self) -> None:
        """Forget all rows."""
        self._length = 0
        memory = self._call("get_memory", ctypes.c_void_p, self._context)
        self._call("memory_clear", None, ctypes.c_void_p(memory), True)

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
        batch = _Batch((count, ids.ctypes.data, 0, *arrays))
        if self._call("decode", ctypes.c_int, self._context, batch) != 0:
            raise DragonError("llama.cpp has no room for these tokens: take fewer")
        self._length += len(tokens)
        logits = self._call(
            "get_logits_ith", ctypes.POINTER(ctypes.c_float), self._context, count - 1
        )
        return int(np.ctypeslib.as_array(logits, (self._vocabulary,)).argmax())

    def _call(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, f"llama_{name}")
        function.restype = result
        return function(*arguments)


def library() -> str | None:
    """Find the wheel's file of functions; None where it is not installed."""
    spec = find_spec("xllamacpp")
    found = Path(spec.origin or "").parent.glob("*.so") if spec is not None else ()
    return next(map(str, found), None)
