"""Mixing what workers say: the bounds of SPECFED, and that the mixture is what comes out."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragonrt.distributions import Distribution, codec, total_variation
from dragonrt.sampling import (
    SamplingError,
    acceptance_change,
    aggregation_bias,
    bias_bound,
    missed_mass,
    mixture,
    relevance_weights,
    renormalise,
    residual,
    side_weights,
    token_acceptance,
)

# fp16 keeps 11 significant bits of each value; the bounds are those of exact values.
FP16_ERROR = 2.0**-10


@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[NDArray[np.float64]], tuple[float, ...], int]:
    """The workers' distributions and weights, and K."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    workers, size = draw(st.integers(1, 4)), draw(st.integers(2, 40))
    concentration = draw(st.sampled_from([0.02, 0.3, 1.0, 30.0]))
    weights = renormalise(rng.random(workers).tolist(), [True] * workers)
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
    p_tilde, p = mixture(uploads, weights), mixture(exact, weights)
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


@given(rounds())
def test_the_mixture_is_what_verification_gives(
    each: tuple[list[NDArray[np.float64]], tuple[float, ...], int],
) -> None:
    """Enumerated: the coordinator's exact drafts, corrected to the mixture of reconstructions."""
    rows, weights, k = each
    coder = codec(f"topk:{k}:residual", rows[0].size)
    uploads = [coder.quantize(p).distribution for p in rows]
    expected = sum(w * u.to_dense() for w, u in zip(weights, uploads, strict=True))
    p = mixture(uploads, weights)
    assert np.allclose(p, expected, rtol=0, atol=1e-12)
    q = np.random.default_rng(k).dirichlet(np.full(p.size, 0.5))
    stands = q * [token_acceptance(a, b) for a, b in zip(p, q, strict=True)]
    refused = residual(p, Distribution.from_dense(q))
    if refused.any():
        refused *= (1 - stands.sum()) / refused.sum()
    assert np.allclose(stands + refused, expected, rtol=0, atol=1e-12)


class TestWeights:
    @given(st.lists(st.floats(-300, 300), min_size=1, max_size=5), st.floats(-1e3, 1e3))
    def test_softmax(self, h: list[float], shift: float) -> None:
        weights = relevance_weights(h)
        assert math.fsum(weights) == pytest.approx(1, abs=1e-12)
        assert relevance_weights([x + shift for x in h]) == pytest.approx(weights, abs=1e-9)
        if len(h) == 2:
            assert weights == pytest.approx(side_weights(*h), abs=1e-12)

    def test_a_worker_without_documents_has_no_weight(self) -> None:
        assert relevance_weights([0.0, -math.inf, 0.0]) == (0.5, 0.0, 0.5)

    @pytest.mark.parametrize("h", [[], [math.nan, 0.0], [0.0, math.nan], [-math.inf], [math.inf]])
    def test_no_softmax(self, h: list[float]) -> None:
        with pytest.raises(SamplingError, match="relevances"):
            relevance_weights(h)

    def test_those_left_out_have_none(self) -> None:
        assert renormalise((0.5, 0.25, 0.25), (True, False, True)) == pytest.approx(
            (2 / 3, 0, 1 / 3)
        )
        assert renormalise((3, 1), (True, True)) == (0.75, 0.25)

    @pytest.mark.parametrize("present", [(False, False), (False, True)])
    def test_no_weight_is_left(self, present: tuple[bool, bool]) -> None:
        with pytest.raises(SamplingError, match="weight"):
            renormalise((1.0, 0.0), present)
