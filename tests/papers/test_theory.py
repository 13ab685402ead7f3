"""Approximate verification: Theorem 1's mixture, and the closed forms against simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragonrt.distributions import Distribution, codec, mix, total_variation
from dragonrt.sampling.rules import (
    expected_acceptance_algorithm1,
    renormalise,
    residual,
    token_acceptance,
)
from scripts.papers.theory import (
    acceptance_change,
    aggregation_bias,
    bias_bound,
    expected_acceptance_coupled,
    expected_acceptance_sprinter,
    expected_run_length,
    missed_mass,
    mixture_tv,
    output_distribution,
    stopping_time,
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


# fp16 keeps 11 significant bits of each value; the bounds are those of exact values.
FP16_ERROR = 2.0**-10


@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[NDArray[np.float64]], tuple[float, ...], int]:
    """The workers' distributions and weights, and K."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    workers, size = draw(st.integers(1, 4)), draw(st.integers(2, 40))
    concentration = draw(st.sampled_from([0.02, 0.3, 1.0, 30.0]))
    weights = renormalise(rng.random(workers).tolist())
    rows = list(rng.dirichlet(np.full(size, concentration), workers))
    return rows, weights, draw(st.integers(1, size))


@pytest.mark.parametrize("form", ["renorm", "residual"])
@given(each=rounds())
def test_the_bounds(
    form: str, each: tuple[list[NDArray[np.float64]], tuple[float, ...], int]
) -> None:
    rows, weights, k = each
    size = rows[0].size
    coder = codec(f"topk:{k}:{form}", size)
    uploads = [coder.quantize(p).distribution for p in rows]
    exact = [Distribution.from_dense(p) for p in rows]
    missed = [missed_mass(p, k) for p in rows]
    for upload, said, r in zip(uploads, exact, missed, strict=True):
        local = total_variation(upload, said)
        assert local <= r + FP16_ERROR
        if form == "renorm":
            assert local == pytest.approx(r, abs=FP16_ERROR)
    bound = bias_bound(weights, missed)
    bias = aggregation_bias(uploads, exact, weights)
    assert bias <= bound + FP16_ERROR
    p_tilde, p = mix(uploads, weights).to_dense(), mix(exact, weights).to_dense()
    assert bias == pytest.approx(0.5 * np.abs(p_tilde - p).sum(), abs=1e-12)
    q = np.random.default_rng(k).dirichlet(np.full(size, 0.5))
    change = acceptance_change(
        Distribution.from_dense(q), Distribution.from_dense(p_tilde), Distribution.from_dense(p)
    )
    by_definition = abs(np.minimum(q, p_tilde).sum() - np.minimum(q, p).sum())
    assert change == pytest.approx(by_definition, abs=1e-12)
    assert change <= bias + 1e-12


def test_what_top_k_misses() -> None:
    p = np.array([0.1, 0.4, 0.2, 0.3])
    assert [missed_mass(p, k) for k in range(1, 5)] == pytest.approx([0.6, 0.3, 0.1, 0.0])
    assert bias_bound((0.75, 0.25), (0.2, 0.4)) == pytest.approx(0.25)


class TestExpectedAcceptance:
    @staticmethod
    def by_definition(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
        shared = [x for x in range(p.size) if p[x] > 0 and q[x] > 0]
        return sum(1 / float(np.maximum(p / p[x], q / q[x]).sum()) for x in shared)

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("name", ["dense:fp32", "topp:0.8", "topk:5:residual"])
    def test_coupled_by_definition(self, seed: int, name: str) -> None:
        rng = np.random.default_rng(seed)
        coder = codec(name, 40)
        p, q = (coder.quantize(rng.dirichlet(np.full(40, 0.2))).distribution for _ in range(2))
        target = mix((p, q), (0.65, 0.35))
        for a, b in ((p, q), (p, target), (q, target), (target, p)):
            expected = self.by_definition(a.to_dense(), b.to_dense())
            assert expected_acceptance_coupled(a, b) == pytest.approx(expected, abs=1e-12)
            assert expected <= 1 - total_variation(a, b) + 1e-12

    def test_extremes(self) -> None:
        dense = np.array([0.4, 0.25, 0.2, 0.1, 0.05, 0.0])
        p = Distribution.from_dense(dense)
        other = Distribution(np.array([5]), np.array([1.0]), 0.0, 6)
        assert expected_acceptance_coupled(p, p) == pytest.approx(1, abs=1e-12)
        assert expected_acceptance_coupled(p, other) == 0
        half = 0.5 + 0.5 * float(dense @ dense)
        assert expected_acceptance_algorithm1(p, p, 0.3) == pytest.approx(half, abs=1e-12)
