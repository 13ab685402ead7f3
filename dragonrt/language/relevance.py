"""One side's distribution: its documents' rows, weighted by relevance (SPEC section 1)."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def aggregate_locally(
    log_probabilities: Tensor, relevances: Sequence[float]
) -> tuple[NDArray[np.float64], float]:
    """Mix the rows of one step by the softmax of their documents' relevances (DRAGON Eq. 2).

    Args:
        log_probabilities: float32 [rows, vocabulary], normalized, as `Sequence.extend` returns.
        relevances: one number per row, already divided by the temperature.

    Returns:
        The locally aggregated distribution p_s, dense, summing to 1 in float64, and
        h = logsumexp(relevances), by which the other side weighs it. The same input gives the same
        bits.
    """
    scores = np.asarray(relevances, dtype=np.float64)
    highest = scores.max()
    h = float(highest + np.log(np.exp(scores - highest).sum()))
    with torch.inference_mode():
        log_weights = torch.tensor(scores - h, dtype=torch.float32, device=log_probabilities.device)
        mixed = (log_probabilities + log_weights[:, None]).exp_().sum(dim=0)
    probabilities = mixed.cpu().numpy().astype(np.float64)
    return probabilities / probabilities.sum(), h
