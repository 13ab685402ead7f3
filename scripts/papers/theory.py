"""What the papers' theorems expect: acceptance, the bias of top-K uploads, SPRINTER's closed forms.

A trained verifier of SPRINTER accepts a drafted token x that is acceptable, q(x) ≤ p(x), with the
probability η_TP, and one that is not with η_FP; the theory takes both as constants.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution, mix, total_variation
from dragonrt.distributions.distribution import probabilities_on, top_k, union_support


def expected_acceptance_coupled(p_own: Distribution, p_target: Distribution) -> float:
    """P(argmax p/E = argmax q/E) = Σ_x 1 / Σ_y max(p(y)/p(x), q(y)/q(x)), exactly (SPEC 1.2).

    For x to win both races, every y must have E(y) > E(x) · max(p(y)/p(x), q(y)/q(x)); E(x)
    integrates out. Takes the distributions that are raced: after the sampler.
    """
    ids = union_support((p_own, p_target))
    others = p_own.vocabulary - ids.size
    p = np.append(probabilities_on(p_own, ids), p_own.rest_density)
    q = np.append(probabilities_on(p_target, ids), p_target.rest_density)
    copies = np.append(np.ones(ids.size), others)  # the tokens nobody lists stand for one another
    possible = (p > 0) | (q > 0)
    p, q, copies = p[possible], q[possible], copies[possible]
    # p(y)/p(x) is the larger one exactly where p(y)/q(y) ≥ p(x)/q(x): sorted by that ratio, the
    # inner sum is a sum of p from x on and a sum of q before x.
    order = np.argsort(np.arctan2(p, q), kind="stable")
    p, q, copies = p[order], q[order], copies[order]
    p_from = np.cumsum((copies * p)[::-1])[::-1]
    q_before = np.cumsum(copies * q) - copies * q
    shared = (p > 0) & (q > 0)
    inner = p_from[shared] / p[shared] + q_before[shared] / q[shared]
    return float((copies[shared] / inner).sum())


def acceptance_probability(p: Distribution, q: Distribution) -> float:
    """Σ_x min(p(x), q(x)) = 1 - TV(p, q): how often a draft from `q` stands (SPECFED Eq. 2)."""
    return 1 - total_variation(p, q)


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


def output_distribution(p: Distribution, q: Distribution, eta_fp: float) -> Distribution:
    """(1 - η_FP) p + η_FP q, the law of every token of the output (Theorem 1)."""
    return mix((p, q), (1 - eta_fp, eta_fp))


def mixture_tv(eta_fp: float, tv: float) -> float:
    """η_FP · TV(p, q), how far the output's law is from the target's (Theorem 1)."""
    return eta_fp * tv


def expected_acceptance_sprinter(eta_fp: float, tv: float) -> float:
    """1 - (1 - η_FP) · TV(p, q): how often a drafted token stands (Theorem 7)."""
    return 1 - (1 - eta_fp) * tv


def expected_run_length(eta_tp: float, eta_fp: float, r: int) -> float:
    """Return the expected number of tokens that pass before one is rejected (Theorem 2), η_FP < 1.

    The first `r` drafted tokens are acceptable, no later one is. It is (η_TP - η_TP^r) / (1 - η_TP)
    + η_TP^r / (1 - η_FP), as a sum that η_TP = 1 does not divide by zero.
    """
    acceptable = sum(eta_tp**length for length in range(1, r + 1))
    return acceptable + eta_tp**r * eta_fp / (1 - eta_fp)


def stopping_time(draft_s: float, eta_tp: float, eta_fp: float, r: int) -> float:
    """Return the expected seconds until a token is rejected, t_d · (1 + run length) (Theorem 3)."""
    return draft_s * (1 + expected_run_length(eta_tp, eta_fp, r))
