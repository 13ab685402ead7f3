"""Approximate verification: what it draws, and what its theory promises (SPEC 4, SPRINTER).

A trained verifier looks at every drafted token x. It should say yes where x is acceptable,
q(x) ≤ p(x). η_TP is how often it says yes to a token that is acceptable, η_FP to one that is not;
the theory takes both as constants. The first token it refuses is verified by the target; the
tokens before it stand unseen, so **the output is not exactly the target's**.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution, mix
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.verification import corrected


def verify_last(
    token: int, q: Distribution, p: NDArray[np.floating[Any]], noise: Noise, step: int
) -> tuple[bool, int]:
    """Whether `token`, drafted from `q` at `step`, stands, and the token that stands there.

    It stands with probability min(1, p(x)/q(x)), otherwise the residual is sampled (Algorithm 2);
    `p` is the target's, floating [V], after the sampler.
    """
    decided = corrected(noise, step, token, q, p)
    return decided == token, decided


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
    """The expected number of tokens that the verifier lets pass before it refuses one (Theorem 2).

    `r` is how many drafted tokens in a row are acceptable, all after them being unacceptable;
    η_FP < 1. (η_TP - η_TP^r) / (1 - η_TP) + η_TP^r / (1 - η_FP), written as a sum that η_TP = 1
    does not divide by zero.
    """
    acceptable = sum(eta_tp**length for length in range(1, r + 1))
    return acceptable + eta_tp**r * eta_fp / (1 - eta_fp)


def stopping_time(draft_s: float, eta_tp: float, eta_fp: float, r: int) -> float:
    """The expected time in seconds until the verifier refuses a token (Theorem 3).

    `draft_s` is the time of drafting one token, t_d; the verifier's own is neglected. The refused
    token is drafted too: t_d · (1 + expected run length).
    """
    return draft_s * (1 + expected_run_length(eta_tp, eta_fp, r))
