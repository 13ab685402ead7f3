"""The head of a vector against a full sort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.distributions.truncation import top_k, top_p


def ranked(p: np.ndarray) -> list[int]:
    return sorted(np.flatnonzero(p).tolist(), key=lambda i: (-p[i], i))


vectors = st.builds(
    lambda seed, size, concentration, step: (
        np.round(np.random.default_rng(seed).dirichlet(np.full(size, concentration)) / step) * step
    ),
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 7, 128, 129, 500]),
    st.sampled_from([0.01, 0.3, 5.0]),
    st.sampled_from([2.0**-12, 2.0**-40]),  # a coarse grid makes ties, sums on a grid are exact
).filter(lambda p: p.any())


@given(vectors, st.integers(1, 600))
def test_top_k_is_the_head_of_the_sorted_vector(p: np.ndarray, k: int) -> None:
    assert top_k(p, k).tolist() == ranked(p)[:k]


@given(vectors, st.floats(1e-3, 1.0))
def test_top_p_is_the_shortest_head_with_the_mass(p: np.ndarray, share: float) -> None:
    mass = share * p.sum()
    ids = top_p(p, mass).tolist()
    assert ids == ranked(p)[: len(ids)]
    assert p[ids].sum() >= mass
    assert p[ids[:-1]].sum() < mass


def test_entries_that_reach_the_mass_exactly_are_enough() -> None:
    p = np.array([0.125, 0.5, 0.25, 0.125])
    assert top_p(p, 0.5).tolist() == [1]
    assert top_p(p, 0.75).tolist() == [1, 2]


@pytest.mark.parametrize("size", [10, 1000])
def test_ties_go_to_the_lower_index(size: int) -> None:
    p = np.full(size, 1 / size)
    assert top_k(p, 3).tolist() == [0, 1, 2]
    assert top_p(p, 2.5 / size).tolist() == [0, 1, 2]


@pytest.mark.parametrize("k", range(1, 8))
def test_few_of_a_sharp_vector_are_all_found(k: int) -> None:
    """However many of them are above the first threshold of the search: often one too few."""
    for seed in range(40):
        p = np.exp(8 * np.random.default_rng(seed).standard_normal(300))
        assert top_k(p, k).tolist() == ranked(p)[:k]


def test_float32_is_ranked_as_it_is() -> None:
    p = np.random.default_rng(1).dirichlet(np.full(1000, 0.02)).astype(np.float32)
    assert top_k(p, 40).tolist() == ranked(p)[:40]
