"""How often a side's draft is going to be the target token, from the distributions alone."""

import numpy as np

from dragonrt.distributions import Distribution, mix, total_variation
from dragonrt.distributions.distribution import probabilities_on, union_support


def expected_acceptance_algorithm1(
    p_own: Distribution, p_other: Distribution, eta_own: float, gamma_own: float = 0.5
) -> float:
    """α = γ (1 - η_other δ) + (1 - γ) Σ p_own(x) p_t(x), δ = TV(p_own, p_other) (DRAGON Eq. 5).

    γ is how often the own corrected draft is taken. α grows with it (Theorem 4.2).
    """
    p_target = mix((p_own, p_other), (eta_own, 1 - eta_own))
    ids = p_target.ids
    both = float(probabilities_on(p_own, ids) @ p_target.probabilities)
    both += p_own.rest_density * p_target.rest
    kept = 1 - (1 - eta_own) * total_variation(p_own, p_other)
    return gamma_own * kept + (1 - gamma_own) * both


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
