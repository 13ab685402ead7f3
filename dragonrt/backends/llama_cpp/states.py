"""Saved states of sequences, for contexts of any number of sequences.

llama.cpp writes the number of the context's sequences, then the cells of each, and loads a state
into a context of the same number only. But of all these sequences only the saved one has cells:
the others are a zero each, before and behind it.
"""

import numpy as np
from numpy.typing import NDArray

from dragonrt.errors import ModelError

State = NDArray[np.uint8]

_WORD = 4
_HEADERS = (0, 8)
"""Bytes before that number: newer versions write a magic number and the sequence."""


def portable(state: State, sequence: int, sequences: int) -> State:
    """Return the state of a sequence, saved in a context of so many, as from a context of one.

    Raises ModelError if llama.cpp writes states in another way.
    """
    for start in _HEADERS:
        cells = start + _WORD * (1 + sequence)
        end = state.size - _WORD * (sequences - 1 - sequence)
        around = state[start + _WORD : cells], state[end:]
        if _word(state, start) == sequences and not any(part.any() for part in around):
            return np.concatenate([state[:start], _words(1), state[cells:end]])
    raise ModelError("this llama.cpp writes states in an unknown form: use another version")


def native(state: State, sequences: int) -> State:
    """Return a `portable` state as a context of so many sequences reads it, or raise ModelError."""
    for start in _HEADERS:
        if _word(state, start) == 1:
            rest, others = state[start + _WORD :], [0] * (sequences - 1)
            return np.concatenate([state[:start], _words(sequences), rest, _words(*others)])
    raise ModelError("the stored KV of a document is damaged: delete it")


def _word(state: State, at: int) -> int:
    return int.from_bytes(state[at : at + _WORD].tobytes(), "little")


def _words(*numbers: int) -> State:
    return np.array(numbers, "<u4").view(np.uint8)
