"""One side's distribution: its documents' rows, weighted by relevance (SPEC section 1)."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def aggregate_locally(
    log_probabilities: Tensor, relevances: Sequence[float]
) -> tuple[NDArray[np.float32], float]:
    """Mix the rows of one step by the softmax of their documents' relevances (DRAGON Eq. 2).

    Args:
        log_probabilities: float32 [rows, vocabulary], normalized, as `Sequence.extend` returns.
        relevances: one number per row, already divided by the temperature.

    Returns:
        The locally aggregated distribution p_s, dense, summing to 1 up to float32's rounding (a
        codec makes it exact), and h = logsumexp(relevances), by which the other side weighs it.
        The same input gives the same bits.
    """
    h = log_sum_exp(relevances)
    log_weights = [[score - h] for score in relevances]
    with torch.inference_mode():
        weights = torch.tensor(log_weights, dtype=torch.float32, device=log_probabilities.device)
        mixed = (log_probabilities + weights).exp_().sum(dim=0)
    return mixed.numpy(force=True), h


def log_sum_exp(relevances: Sequence[float]) -> float:
    """h = log Σ exp(relevance), by which a side's distribution is weighed."""
    highest = max(relevances)
    return highest + math.log(sum(math.exp(score - highest) for score in relevances))
