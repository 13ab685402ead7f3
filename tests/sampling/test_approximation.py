"""Approximate verification: Theorem 1's mixture, and the closed forms against simulation."""

import numpy as np
import pytest

from dragonrt.distributions import Distribution, codec, total_variation
from dragonrt.sampling import (
    expected_acceptance_sprinter,
    expected_run_length,
    mixture_tv,
    output_distribution,
    residual,
    stopping_time,
    token_acceptance,
)

RNG = np.random.default_rng(6)
P, Q_DENSE = RNG.dirichlet(np.full(8, 0.6), 2)
Q = codec("topk:5:residual", 8).quantize(Q_DENSE).distribution
TARGET = Distribution.from_dense(P)


@pytest.mark.parametrize("eta_fp", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("eta_tp", [0.0, 0.6, 1.0])
def test_theorem_1_by_enumeration(eta_tp: float, eta_fp: float) -> None:
    q = Q.to_dense()
    says_yes = np.where(q <= P, eta_tp, eta_fp)
    seen = q * (1 - says_yes)  # drafted, refused by the verifier, and looked at by the target
    stands = np.array([token_acceptance(a, b) for a, b in zip(P, q, strict=True)])
    again = residual(P, Q) / residual(P, Q).sum()
    law = q * says_yes + seen * stands + (seen * (1 - stands)).sum() * again
    expected = output_distribution(TARGET, Q, eta_fp).to_dense()
    assert np.allclose(law, expected, rtol=0, atol=1e-12)
    tv = total_variation(TARGET, Q)
    assert 0.5 * np.abs(law - P).sum() == pytest.approx(mixture_tv(eta_fp, tv), abs=1e-12)
    accepted = float((q * says_yes + seen * stands).sum())
    assert accepted == pytest.approx(expected_acceptance_sprinter(eta_fp, tv), abs=1e-12)


@pytest.mark.parametrize("eta_tp", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("eta_fp", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("r", [1, 2, 5])
def test_theorems_2_and_3_as_they_are_written(eta_tp: float, eta_fp: float, r: int) -> None:
    tail = eta_tp**r / (1 - eta_fp)
    assert expected_run_length(eta_tp, eta_fp, r) == pytest.approx(
        (eta_tp - eta_tp**r) / (1 - eta_tp) + tail, abs=1e-12
    )
    assert stopping_time(0.02, eta_tp, eta_fp, r) == pytest.approx(
        0.02 * ((1 - eta_tp**r) / (1 - eta_tp) + tail), abs=1e-12
    )


def test_run_lengths_at_the_edges() -> None:
    assert expected_run_length(1.0, 0.0, 5) == 5
    assert expected_run_length(0.8, 0.5, 0) == 1
    assert stopping_time(0.1, 0.0, 0.0, 5) == 0.1
