"""A model as the modes with blocks see it: what it says after prefixes of a line (SPEC 2 - 4)."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dragonrt.runtime.draft import Line


@dataclass(frozen=True, slots=True)
class NextToken:
    """What a side says after one prefix: its locally aggregated distribution (SPEC section 1).

    `p` float32 [vocabulary], before any sampler; `relevance` is h̃; `hidden` float32 [hidden] is
    what the output layer read, the rows weighed like their distributions.
    """

    p: NDArray[np.float32]
    relevance: float
    hidden: NDArray[np.float32]


class Predictor(Protocol):
    """One model with its documents, for one answer.

    The KV cache is the predictor's own affair: it is cut back to the common prefix of what it holds
    and what it is asked for. One call at a time; after `preempt` the next one may come at once.
    """

    async def predict(self, line: Line, first: int, last: int) -> list[NextToken]:
        """What follows each prefix of `line` of length `first`, `first` + 1, … `last`.

        One forward, however long the block. Raises PreemptedError after `preempt`.
        """
        ...

    def preempt(self) -> None:
        """Stop the forward under way as soon as possible; without effect when there is none."""
        ...
