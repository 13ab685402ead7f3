"""A side's prediction: its rows' distributions, mixed by the relevance of their documents."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.backend import RowLogits

SUREST = 1 - 1e-6
"""The largest probability of a refusal: keeps a row's weight above 0."""

Relevances = NDArray[np.float64]
"""Document relevances [rows], already divided by their temperature."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """The documents' relevances, recomputed by `again` after every `every` tokens (0: never).

    They depend only on the text, so rollbacks cannot change drafts (SPEC section 0). `refusal` is
    the first token of the model's refusal, if known; `doubt` is its weight against a row.
    """

    initial: Relevances
    every: int = 0
    again: Callable[[list[int]], Relevances] | None = None
    refusal: int | None = None
    doubt: float = 0.0

    def doubts(self, rows: RowLogits) -> Relevances:
        """Return the change of relevances by the prompt's logits: doubt * log(1 - P(refusal))."""
        if self.refusal is None:
            return np.zeros_like(self.initial)
        refused = np.minimum(rows.probability(self.refusal), SUREST)
        found: Relevances = self.doubt * np.log1p(-refused)
        return found


class RowWeights:
    """The weights of one side's rows: the softmax of their relevances (DRAGON Eq. 2).

    `weights` are ω̃, float64 [rows]; `logs` are their logarithms, float32; `relevance` is
    h̃ = logsumexp(relevances), by which the other side weighs this one.
    """

    def __init__(self, relevances: Sequence[float] | Relevances) -> None:
        found = np.asarray(relevances, dtype=np.float64)
        scores = found.tolist()
        highest: float = max(scores)
        self.relevance: float = highest + math.log(
            sum(math.exp(score - highest) for score in scores)
        )
        self.weights: NDArray[np.float64] = np.exp(found - found.max())
        self.weights /= self.weights.sum()
        self.logs = np.array([score - self.relevance for score in scores], np.float32)


@dataclass(eq=False)
class Mixture:
    """A side's prediction after one prefix: its rows, mixed by relevance (DRAGON Eq. 2).

    `weigh` returns the weights of the rows. Values are computed at first use, once.
    """

    rows: RowLogits
    weigh: Callable[[], RowWeights]

    @cached_property
    def p(self) -> NDArray[np.float32]:
        """Return the locally aggregated distribution [vocabulary], before any sampler.

        It sums to 1 up to float32's rounding; a codec makes the sum exact.
        """
        return self.rows.mixed(self._weighed.logs)

    @cached_property
    def relevance(self) -> float:
        """Return h̃, by which the other side weighs this one."""
        return self._weighed.relevance

    @cached_property
    def hidden(self) -> NDArray[np.float32]:
        """Return the input of the output layer [hidden], mixed with the rows' weights."""
        hidden: NDArray[np.float32] = (self.weights @ self.rows.hidden()).astype(np.float32)
        return hidden

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """Return ω̃, the weight of each row [rows]."""
        return self._weighed.weights

    def shares(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return each row's part of the probabilities of these tokens [rows, tokens]."""
        p = np.exp(self.rows.at(tokens).astype(np.float64))
        shares: NDArray[np.float64] = p * self.weights[:, None]
        return shares

    @cached_property
    def _weighed(self) -> RowWeights:
        return self.weigh()
