"""Rounding to the lattice (SQS Alg. 2) and what is lost by it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.distributions import Distribution, LatticePoint, total_variation
from dragonrt.distributions.lattice import dropped_mass, round_to_lattice


def algorithm_2(q: list[float], resolution: int) -> list[int]:
    """SQS Alg. 2 line by line."""
    counts = [int(np.floor(resolution * x + 0.5)) for x in q]
    errors = [b - resolution * x for b, x in zip(counts, q, strict=True)]
    excess = sum(counts) - resolution
    by_error = sorted(range(len(q)), key=lambda i: (errors[i], i))
    if excess > 0:
        for i in by_error[-excess:]:
            counts[i] -= 1
    for i in by_error[: max(0, -excess)]:
        counts[i] += 1
    return counts


@given(st.integers(0, 2**32), st.integers(1, 300), st.integers(1, 1000), st.floats(0.01, 3))
def test_rounding(seed: int, size: int, resolution: int, concentration: float) -> None:
    q = np.random.default_rng(seed).dirichlet(np.full(size, concentration))
    counts = round_to_lattice(q, resolution)
    assert counts.tolist() == algorithm_2(q.tolist(), resolution)
    assert counts.sum() == resolution
    assert counts.min() >= 0
    assert np.abs(counts / resolution - q).max() <= 1 / resolution + 1e-12
    assert 0.5 * np.abs(counts / resolution - q).sum() <= size / (4 * resolution) + 1e-12  # Th. 1
    assert counts[q.argmax()] == counts.max() > 0


@pytest.mark.parametrize(
    ("q", "resolution", "counts"),
    [
        ([0.25] * 4, 2, [1, 1, 0, 0]),  # ½ rounds to 1 four times: two too many
        ([0.125] * 8, 10, [2, 2, 1, 1, 1, 1, 1, 1]),  # 1.25 rounds to 1: two too few
        ([0.5, 0.5], 3, [2, 1]),
        ([1.0], 7, [7]),
        ([0.9, 0.05, 0.05], 1, [1, 0, 0]),
    ],
)
def test_ties_favour_the_lower_index(q: list[float], resolution: int, counts: list[int]) -> None:
    rounded = round_to_lattice(np.array(q), resolution).tolist()
    assert sum(rounded) == resolution
    assert rounded == counts


def test_a_point_lists_the_tokens_with_mass() -> None:
    point = LatticePoint(np.array([2, 5, 9]), np.array([3, 0, 1]), 4, 20)
    q = point.distribution()
    assert q.ids.tolist() == [2, 9]
    assert q.probabilities.tolist() == [0.75, 0.25]
    assert (q.rest, q.vocabulary) == (0.0, 20)


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_dropped_mass(seed: int, kept: int) -> None:
    """It is the total variation between q and q renormalised on what is kept (SQS Lemma 1)."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(60, 0.3))
    ids = np.sort(rng.choice(60, kept, replace=False))
    dropped = dropped_mass(q, ids)
    assert dropped == pytest.approx(1 - q[ids].sum(), abs=1e-12)
    assert dropped == pytest.approx(dropped_mass(0.5 * q, ids), abs=1e-12)
    if q[ids].sum() > 0:
        renormalised = Distribution(ids, q[ids] / q[ids].sum(), 0.0, 60)
        tv = total_variation(Distribution.from_dense(q), renormalised)
        assert dropped == pytest.approx(tv, abs=1e-12)


def test_nothing_dropped_is_exactly_nothing() -> None:
    q = np.random.default_rng(1).dirichlet(np.full(500, 0.3))
    assert dropped_mass(q, np.arange(500)) == 0.0
