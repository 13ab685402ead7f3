"""What every codec asks of the numbers in its name and of the vectors it is given."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.errors import CodecError


def number(text: str) -> float:
    """The number that `text` writes in plain digits, otherwise nan (which no name accepts)."""
    return float(text) if text.replace(".", "", 1).isdecimal() and text.isascii() else float("nan")


def whole_number(text: str) -> int:
    """The whole number that `text` writes in plain digits, otherwise 0 (which no name accepts)."""
    return int(n) if (n := number(text)).is_integer() else 0


def checked_sum(p: NDArray[np.floating[Any]], vocabulary: int) -> float:
    """The sum of the probabilities `p`, floating [V].

    Raises CodecError for another shape, negative or non-finite entries, or a zero sum.
    """
    if p.shape != (vocabulary,):
        raise CodecError(f"probabilities of shape {p.shape} where the codec expects {vocabulary}")
    total = float(p.sum(dtype=np.float64))
    if not (p.min() >= 0 and 0 < total < np.inf):
        raise CodecError("probabilities must be finite, not negative, and not all zero")
    return total
