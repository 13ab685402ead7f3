"""Distributions as values against dense vectors, and the head of a vector against a full sort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.distributions import Distribution, DistributionError, entropy, mix, total_variation
from dragonrt.distributions.distribution import top_k, top_p

VOCABULARY = 12


@st.composite
def distributions(draw: st.DrawFn, vocabulary: int = VOCABULARY) -> Distribution:
    ids = sorted(draw(st.sets(st.integers(0, vocabulary - 1), min_size=1)))
    weight = st.floats(1e-6, 1.0)
    values = np.array(draw(st.lists(weight, min_size=len(ids), max_size=len(ids))))
    rest = draw(st.one_of(st.just(0.0), weight)) if len(ids) < vocabulary else 0.0
    total = values.sum() + rest
    return Distribution(np.array(ids), values / total, rest / total, vocabulary)


@given(distributions())
def test_dense_and_back(p: Distribution) -> None:
    dense = p.to_dense()
    assert dense.shape == (VOCABULARY,)
    assert dense.sum() == pytest.approx(1, abs=1e-12)
    again = Distribution.from_dense(dense)
    assert again.rest == 0
    assert np.array_equal(again.to_dense(), dense)
    assert [p.probability(token) for token in range(VOCABULARY)] == dense.tolist()


def test_from_dense_lists_only_what_is_above_zero() -> None:
    p = Distribution.from_dense(np.array([0.0, 0.25, 0.0, 0.75], dtype=np.float32))
    assert p.ids.tolist() == [1, 3]
    assert p.probabilities.dtype == np.float64
    assert len(p) == 2


@given(distributions(), distributions(), distributions(), st.floats(0, 1))
def test_mix_is_the_weighted_sum(
    a: Distribution, b: Distribution, c: Distribution, share: float
) -> None:
    weights = (share / 2, share / 2, 1 - share)
    mixed = mix((a, b, c), weights)
    expected = sum(w * p.to_dense() for w, p in zip(weights, (a, b, c), strict=True))
    assert np.allclose(mixed.to_dense(), expected, rtol=0, atol=1e-15)
    assert (np.diff(mixed.ids) > 0).all()
    assert mixed.probabilities.sum() + mixed.rest == pytest.approx(1, abs=1e-12)


@given(distributions(), distributions(), st.floats(0, 1))
def test_mix_of_two_is_the_same_in_either_order(
    a: Distribution, b: Distribution, share: float
) -> None:
    one = mix((a, b), (share, 1 - share))
    other = mix((b, a), (1 - share, share))
    assert np.array_equal(one.ids, other.ids)
    assert np.array_equal(one.probabilities, other.probabilities)
    assert one.rest == other.rest


@given(distributions(), distributions())
def test_total_variation(a: Distribution, b: Distribution) -> None:
    expected = 0.5 * np.abs(a.to_dense() - b.to_dense()).sum()
    assert total_variation(a, b) == pytest.approx(expected, abs=1e-14)
    assert total_variation(a, a) == 0


@given(distributions())
def test_entropy(p: Distribution) -> None:
    dense = p.to_dense()
    dense = dense[dense > 0]
    assert entropy(p) == pytest.approx(-(dense * np.log(dense)).sum(), abs=1e-12)


def test_entropy_of_a_certain_token_is_zero() -> None:
    assert entropy(Distribution(np.array([2, 5]), np.array([1.0, 0.0]), 0.0, 9)) == 0


@pytest.mark.parametrize("operation", [lambda a, b: mix((a, b), (0.5, 0.5)), total_variation])
def test_vocabularies_do_not_mix(operation) -> None:  # type: ignore[no-untyped-def]
    a = Distribution(np.array([0]), np.array([1.0]), 0.0, 4)
    b = Distribution(np.array([0]), np.array([1.0]), 0.0, 5)
    with pytest.raises(DistributionError):
        operation(a, b)


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
