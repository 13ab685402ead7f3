"""Bits, sets of token ids, ranks of subsets and compositions: what is written comes back."""

from itertools import combinations, pairwise, product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.distributions import CodecError
from dragonrt.distributions.byte_codecs import decode_support, encode_support, low_bits_of
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
from dragonrt.distributions.protocol import BitReader, BitWriter

FIELDS = st.lists(
    st.integers(0, 200).flatmap(lambda b: st.tuples(st.integers(0, 2**b - 1), st.just(b)))
)


@given(FIELDS)
def test_fields_round_trip_and_the_first_has_the_highest_bits(
    fields: list[tuple[int, int]],
) -> None:
    writer = BitWriter()
    for value, bits in fields:
        writer.write(value, bits)
    text = "".join(f"{value:0{bits}b}" for value, bits in fields if bits)
    padded = text + "0" * (-len(text) % 8)
    assert writer.bits == len(text)
    data = writer.to_bytes()
    assert data == int(padded or "0", 2).to_bytes(len(padded) // 8, "big")
    reader = BitReader(data)
    assert [reader.read(bits) for _, bits in fields] == [value for value, _ in fields]
    reader.finish()


@pytest.mark.parametrize(("value", "bits"), [(-1, 3), (8, 3), (1, 0)])
def test_a_value_that_does_not_fit_is_refused(value: int, bits: int) -> None:
    with pytest.raises(ValueError, match="fit"):
        BitWriter().write(value, bits)


def test_missing_bits_are_refused() -> None:
    reader = BitReader(b"\xff")
    reader.read(5)
    with pytest.raises(CodecError):
        reader.read(4)


@pytest.mark.parametrize(("data", "bits"), [(b"\x80\x00", 8), (b"\x81", 1), (b"\x00\x00", 1)])
def test_trailing_bits_are_refused(data: bytes, bits: int) -> None:
    reader = BitReader(data)
    reader.read(bits)
    with pytest.raises(CodecError):
        reader.finish()


@given(
    st.sets(st.integers(0, 2**18), min_size=1, max_size=300)
    | st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=20),
    st.integers(17, 31),
)
def test_sets_come_back_with_any_number_of_low_bits(tokens: set[int], many: int) -> None:
    ids = np.array(sorted(tokens))
    for low_bits in (low_bits_of(ids), many):
        code = encode_support(ids, low_bits)
        for tail in (b"", b"\0", b"\xff" * 9):
            read, length = decode_support(code + tail, ids.size, low_bits, int(ids[-1]) + 1)
            assert np.array_equal(read, ids)
            assert length == len(code)
        with pytest.raises(CodecError):
            decode_support(code, ids.size, low_bits, int(ids[-1]))


@pytest.mark.parametrize("count", [1, 3, 700])
def test_all_ids_from_zero_on(count: int) -> None:
    ids = np.arange(count)
    assert low_bits_of(ids) == 0
    assert len(encode_support(ids, 0)) == -(-(2 * count - 1) // 8)


@given(st.binary(max_size=12), st.integers(1, 40), st.integers(0, 31))
def test_only_codec_errors_escape(code: bytes, count: int, low_bits: int) -> None:
    try:
        ids, length = decode_support(code, count, low_bits, 1000)
    except CodecError:
        return
    assert ids.size == count
    assert (np.diff(ids) > 0).all()
    assert 0 <= ids[0] <= ids[-1] < 1000
    assert encode_support(ids, low_bits) == code[:length]


@pytest.mark.parametrize("count", [3, 30])
@pytest.mark.parametrize("first", [b"\x00", b"\x01"])
def test_ids_twice_or_in_another_order_are_refused(count: int, first: bytes) -> None:
    """The first byte has the low bits of the first two ids, 0 and 1."""
    code = encode_support(np.arange(count), 4)
    assert code[:1] == b"\x10"
    with pytest.raises(CodecError):
        decode_support(first + code[1:], count, 4, 1000)


# Ranks: a bijection onto 0 … C - 1, at every size.


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
