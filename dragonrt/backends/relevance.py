"""One side's distribution: its documents' rows, weighted by relevance (SPEC section 1)."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class RowWeights:
    """What the rows of one side count: the softmax of their documents' relevances (DRAGON Eq. 2).

    Made once for all the steps that they hold for. `weights` are ω̃, float64 [rows]; `relevance` is
    h̃ = logsumexp(relevances), by which the other side weighs this one.
    """

    def __init__(self, relevances: Sequence[float] | NDArray[np.float64]) -> None:
        """One number per row, already divided by the temperature."""
        self.relevances = np.asarray(relevances, dtype=np.float64)
        scores = self.relevances.tolist()
        self.relevance = log_sum_exp(scores)
        self.weights: NDArray[np.float64] = np.exp(self.relevances - self.relevances.max())
        self.weights /= self.weights.sum()
        self._logs = torch.tensor(
            [[score - self.relevance] for score in scores], dtype=torch.float32
        )

    def mixed(self, log_probabilities: Tensor) -> NDArray[np.float32]:
        """The rows of one step, mixed: p_s, dense, summing to 1 up to float32's rounding.

        Takes float32 [rows, vocabulary], normalized, as `Sequence.extend` returns. A codec makes
        the sum exact. The same input gives the same bits.
        """
        with torch.inference_mode():
            self._logs = self._logs.to(log_probabilities.device)
            mixed = (log_probabilities + self._logs).exp_().sum(dim=0)
        return mixed.numpy(force=True)


def log_sum_exp(relevances: Sequence[float]) -> float:
    """h = log Σ exp(relevance), by which a side's distribution is weighed."""
    highest = max(relevances)
    return highest + math.log(sum(math.exp(score - highest) for score in relevances))
