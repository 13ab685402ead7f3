"""Mixing what several workers say, and what top-K uploads can change in it (SPEC 3, SPECFED).

Verification is that of `speculative`: the coordinator's draft distribution is exact, and the
target is the mixture of what the workers' uploads are reconstructed to.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution, mix, total_variation
from dragonrt.distributions.truncation import top_k
from dragonrt.errors import SamplingError
from dragonrt.sampling.acceptance import acceptance_probability


def relevance_weights(relevances: Sequence[float]) -> tuple[float, ...]:
    """softmax of the workers' h̃: `side_weights` for any number of workers, in their order.

    A worker without documents has -inf and the weight 0. Raises SamplingError where no softmax
    exists.
    """
    largest = max(relevances, default=-math.inf)
    if not math.isfinite(largest) or any(math.isnan(h) for h in relevances):
        raise SamplingError(f"relevances {list(relevances)} have no softmax; retrieve again")
    return renormalise([math.exp(h - largest) for h in relevances], [True] * len(relevances))


def renormalise(weights: Sequence[float], present: Sequence[bool]) -> tuple[float, ...]:
    """The weights of a round in which only the workers that are `present` take part: sum 1.

    The others get 0. Raises SamplingError where no weight is left.
    """
    taken = [weight if here else 0.0 for weight, here in zip(weights, present, strict=True)]
    total = math.fsum(taken)
    if not total > 0:
        raise SamplingError("no worker that takes part has a weight above 0; wait for one that has")
    return tuple(weight / total for weight in taken)


def mixture(distributions: Sequence[Distribution], weights: Sequence[float]) -> NDArray[np.float64]:
    """p̃_t = Σ w_i p̃_t^i, what drafts are verified against (SPECFED Eq. 1, 7): float64 [V].

    For weights that sum to one. Raises DistributionError if the vocabularies differ.
    """
    return mix(distributions, weights).to_dense()


def missed_mass(p: NDArray[np.floating[Any]], k: int) -> float:
    """r = 1 - P_K, the mass of `p`, floating [V], outside its top K (SPECFED Eq. 4).

    It is the local error TV(p̃, p) when renormalised, and bounds it with a residual (Lemma 1).
    """
    return max(0.0, 1 - float(p[top_k(p, k)].sum(dtype=np.float64)))


def aggregation_bias(
    reconstructed: Sequence[Distribution], exact: Sequence[Distribution], weights: Sequence[float]
) -> float:
    """TV(p̃_t, p_t) of the mixtures of all workers (SPECFED Eq. 9)."""
    return total_variation(mix(reconstructed, weights), mix(exact, weights))


def acceptance_change(q: Distribution, reconstructed: Distribution, exact: Distribution) -> float:
    """|Σ min(q, p̃_t) - Σ min(q, p_t)|, for drafts from `q` and both mixtures (SPECFED Eq. 10)."""
    return abs(acceptance_probability(reconstructed, q) - acceptance_probability(exact, q))


def bias_bound(weights: Sequence[float], missed: Sequence[float]) -> float:
    """Σ w_i r_i, above aggregation bias and acceptance change (SPECFED Theorems 2 and 3)."""
    return math.fsum(weight * r for weight, r in zip(weights, missed, strict=True))
