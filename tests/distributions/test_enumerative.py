"""Ranks of subsets and compositions: a bijection onto 0 … C - 1, at every size."""

from itertools import combinations, pairwise, product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.distributions.enumerative import (
    composition_bits,
    is_composition_rank,
    is_subset_rank,
    rank_composition,
    rank_subset,
    subset_bits,
    unrank_composition,
    unrank_subset,
)


@pytest.mark.parametrize("n", range(1, 12))
def test_every_subset_has_a_rank_of_its_own(n: int) -> None:
    for k in range(n + 1):
        subsets = [list(ids) for ids in combinations(range(n), k)]
        ranks = [rank_subset(ids, n) for ids in subsets]
        assert sorted(ranks) == list(range(comb(n, k)))
        possible = range(2 ** subset_bits(n, k))
        assert [each for each in possible if is_subset_rank(each, n, k)] == sorted(ranks)
        assert [unrank_subset(rank, k, n) for rank in ranks] == subsets


@pytest.mark.parametrize("total", range(6))
@pytest.mark.parametrize("parts", range(1, 6))
def test_every_composition_has_a_rank_of_its_own(total: int, parts: int) -> None:
    compositions = [b for b in product(range(total + 1), repeat=parts) if sum(b) == total]
    ranks = [rank_composition(np.array(b)) for b in compositions]
    assert sorted(ranks) == list(range(len(ranks)))
    possible = range(2 ** composition_bits(total, parts))
    assert [each for each in possible if is_composition_rank(each, total, parts)] == sorted(ranks)
    unranked = [tuple(unrank_composition(rank, total, parts).tolist()) for rank in ranks]
    assert unranked == compositions


@given(st.data())
def test_subsets_of_large_vocabularies(data: st.DataObject) -> None:
    n = data.draw(st.sampled_from([63, 64, 65, 8192, 50_257, 151_936, 2**31 - 1]))
    ids = sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=60)))
    rank = rank_subset(ids, n)
    assert 0 <= rank < comb(n, len(ids))
    assert unrank_subset(rank, len(ids), n) == ids


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40))
def test_compositions(counts: list[int]) -> None:
    total, parts = sum(counts), len(counts)
    rank = rank_composition(np.array(counts))
    assert 0 <= rank < comb(total + parts - 1, parts - 1)
    assert unrank_composition(rank, total, parts).tolist() == counts


@pytest.mark.parametrize("n", [1000, 8192, 50_257])
@pytest.mark.parametrize("k", [0, 1, 2, 500, 999])
def test_the_first_and_the_last_rank(n: int, k: int) -> None:
    for rank in (0, comb(n, k) - 1):
        ids = unrank_subset(rank, k, n)
        assert all(a < b for a, b in pairwise(ids))
        assert rank_subset(ids, n) == rank


@pytest.mark.parametrize("k", [3000, 30_000])
def test_more_than_half_of_the_tokens(k: int) -> None:
    n = 32_768
    rng = np.random.default_rng(k)
    for weights in (np.ones(n), 1 / np.arange(1.0, n + 1)):  # scattered, and close together
        ids = np.sort(rng.choice(n, k, replace=False, p=weights / weights.sum())).tolist()
        assert unrank_subset(rank_subset(ids, n), k, n) == ids


@pytest.mark.parametrize(("k", "subset", "composition"), [(8, 110, 35), (64, 704, 153)])
def test_bits_of_the_papers_formula(k: int, subset: int, composition: int) -> None:
    """SQS Eq. (5) and (2) at V = 50,257 and ℓ = 100, each rounded up."""
    assert subset_bits(50_257, k) == subset
    assert composition_bits(100, k) == composition


def test_bits_are_the_logarithm_rounded_up() -> None:
    for n in (1, 64, 5000, 16_384, 20_001):
        for k in (*range(min(n, 40)), *range(1025, n // 2, 1500)):
            assert subset_bits(n, k) == (comb(n, k) - 1).bit_length() == subset_bits(n, n - k)


@pytest.mark.parametrize(("n", "k"), [(5000, 1100), (20_000, 18_000), (18_191, 8192)])
def test_the_first_rank_that_is_none(n: int, k: int) -> None:
    count = comb(n, k)
    top = 1 << subset_bits(n, k)
    assert all(is_subset_rank(rank, n, k) for rank in (0, top // 2, count - 1))
    assert not any(is_subset_rank(rank, n, k) for rank in (count, (count + top) // 2, top - 1))
