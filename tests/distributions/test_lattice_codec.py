"""QS, K-SQS and C-SQS as bits: exactly as many as the formula, back exactly, and nothing else."""

from collections.abc import Callable
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragonrt.distributions import CodecError, LatticePoint, block_codec, codec, lattice_codec
from dragonrt.distributions.bits import BitReader, BitWriter
from dragonrt.distributions.lattice_codec import read_token, token_bits, write_token

NAMES = ["qs:40", "ksqs:1:7", "ksqs:12:100", "ksqs:500:100", "csqs:0.02:100", "csqs:0:30"]


def ceil_log2(count: int) -> int:
    return (count - 1).bit_length()


def formula(name: str, vocabulary: int, k: int, resolution: int) -> int:
    """QSV Eq. (6); SQS Eq. (1), (2), (5) and section 3, each part rounded up."""
    bits = ceil_log2(comb(resolution + k - 1, k - 1))
    if not name.startswith("qs"):
        bits += ceil_log2(comb(vocabulary, k))
    if name.startswith("csqs"):
        bits += ceil_log2(vocabulary)
    return bits


def peaked(rng: np.random.Generator, vocabulary: int, size: int) -> NDArray[np.float64]:
    """A random distribution with most of its mass on about `size` tokens and a thin tail."""
    q = np.full(vocabulary, 0.01 / vocabulary)
    q[rng.integers(vocabulary, size=size)] += rng.gamma(0.2, size=size)
    return q / q.sum()


def same(a: LatticePoint, b: LatticePoint) -> bool:
    return (
        np.array_equal(a.ids, b.ids)
        and np.array_equal(a.counts, b.counts)
        and (a.resolution, a.vocabulary) == (b.resolution, b.vocabulary)
    )


@given(
    name=st.sampled_from(NAMES),
    vocabulary=st.integers(1, 300),
    resolution=st.none() | st.integers(1, 400),
    threshold=st.none() | st.floats(-0.1, 1.1),
    seed=st.integers(0, 2**32),
)
def test_round_trip(
    name: str, vocabulary: int, resolution: int | None, threshold: float | None, seed: int
) -> None:
    q = np.random.default_rng(seed).dirichlet(np.full(vocabulary, 0.1))
    each = lattice_codec(name, vocabulary)
    point = each.quantize(q, resolution, threshold)
    assert point.resolution == (resolution or each.resolution)
    assert (np.diff(point.ids) > 0).all()
    writer = BitWriter()
    each.write(point, writer)
    assert writer.bits == each.bits(point)
    assert writer.bits == formula(name, vocabulary, point.ids.size, point.resolution)
    reader = BitReader(writer.to_bytes())
    assert same(each.read(reader, point.resolution), point)
    reader.finish()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "vocabulary", "size"),
    [
        ("qs:100", 8192, 500),
        ("ksqs:8:100", 50_257, 300),
        ("ksqs:64:100", 50_257, 300),
        ("csqs:0.001:100", 50_257, 300),
        ("ksqs:512:1000", 151_936, 1000),
    ],
)
def test_measured_bits_are_the_formula(name: str, vocabulary: int, size: int) -> None:
    """For 1,000 random distributions, one in 20 of which is read back."""
    rng = np.random.default_rng(5)
    each = lattice_codec(name, vocabulary)
    for draw in range(1000):
        point = each.quantize(peaked(rng, vocabulary, size))
        writer = BitWriter()
        each.write(point, writer)
        assert writer.bits == formula(name, vocabulary, point.ids.size, point.resolution)
        if draw % 20 == 0:
            assert same(each.read(BitReader(writer.to_bytes()), each.resolution), point)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "vocabulary"), [("qs:1000", 151_936), ("qs:10000", 50_257)])
def test_dense_points_of_large_vocabularies(name: str, vocabulary: int) -> None:
    each = lattice_codec(name, vocabulary)
    point = each.quantize(peaked(np.random.default_rng(3), vocabulary, 1500))
    writer = BitWriter()
    each.write(point, writer)
    assert writer.bits == formula(name, vocabulary, vocabulary, each.resolution)
    assert same(each.read(BitReader(writer.to_bytes()), each.resolution), point)


def test_the_formula_at_the_size_of_the_papers_models() -> None:
    each = lattice_codec("ksqs:64:100", 50_257)
    assert each.bits(each.quantize(np.ones(50_257))) == 857


@pytest.mark.parametrize("name", ["qs:3", "ksqs:2:3", "csqs:0.1:3"])
def test_every_bit_string_is_one_point_or_refused(name: str) -> None:
    """Over four tokens, every string: what is read are all points there are, each just once."""
    each = lattice_codec(name, 4)
    sizes = {"qs:3": [4], "ksqs:2:3": [2], "csqs:0.1:3": [1, 2, 3, 4]}[name]
    longest = max(formula(name, 4, k, 3) for k in sizes)
    strings: dict[tuple[object, ...], tuple[int, int]] = {}
    for value in range(2**longest):
        string = BitWriter()
        string.write(value, longest)
        try:
            point = each.read(BitReader(string.to_bytes()), 3)
        except CodecError:
            continue
        bits = formula(name, 4, point.ids.size, 3)
        read = (bits, value >> (longest - bits))
        assert strings.setdefault((*point.ids.tolist(), *point.counts.tolist()), read) == read
        writer = BitWriter()
        each.write(point, writer)
        writer.write(value & ((1 << (longest - bits)) - 1), longest - bits)
        assert writer.to_bytes() == string.to_bytes()
    assert len(strings) == sum(comb(4, k) * comb(3 + k - 1, k - 1) for k in sizes)


@pytest.mark.parametrize("name", NAMES)
def test_missing_bits_are_refused(name: str) -> None:
    each = lattice_codec(name, 300)
    point = each.quantize(np.random.default_rng(2).dirichlet(np.full(300, 0.1)))
    writer = BitWriter()
    each.write(point, writer)
    for length in range(-(-writer.bits // 8)):
        with pytest.raises(CodecError):
            each.read(BitReader(writer.to_bytes()[:length]), each.resolution)


def test_ranks_out_of_range_are_refused() -> None:
    with pytest.raises(CodecError, match="lattice point"):
        lattice_codec("qs:3", 4).read(BitReader(b"\xff"), 3)  # 20 points in 5 bits
    with pytest.raises(CodecError, match="set of tokens"):
        lattice_codec("ksqs:2:3", 4).read(BitReader(b"\xff"), 3)  # 6 sets in 3 bits
    with pytest.raises(CodecError, match="keeps 6 of 5 tokens"):
        lattice_codec("csqs:0.1:3", 5).read(BitReader(b"\xa0\0\0"), 3)


def test_a_large_set_that_is_not_there_costs_nothing() -> None:
    """Half of a vocabulary announced in a few bytes is refused before anything is computed."""
    with pytest.raises(CodecError, match="too early"):
        lattice_codec("csqs:0.1:100", 151_936).read(BitReader(b"\x80" * 20), 100)


@pytest.mark.parametrize("resolution", [0, -1, 10_001])
@pytest.mark.parametrize("name", NAMES)
def test_a_resolution_out_of_range_is_refused(name: str, resolution: int) -> None:
    each = lattice_codec(name, 10)
    with pytest.raises(CodecError, match="resolution"):
        each.quantize(np.ones(10), resolution)
    with pytest.raises(CodecError, match="resolution"):
        each.read(BitReader(bytes(50)), resolution)


class TestWhatIsKept:
    Q = np.array([0.1, 0.4, 0.1, 0.3, 0.0, 0.1])

    def test_qs_keeps_all_tokens(self) -> None:
        point = lattice_codec("qs:10", 6).quantize(self.Q)
        assert point.ids.tolist() == [0, 1, 2, 3, 4, 5]
        assert point.counts.tolist() == [1, 4, 1, 3, 0, 1]

    def test_k_sqs_keeps_the_most_likely(self) -> None:
        point = lattice_codec("ksqs:3:8", 6).quantize(self.Q)
        assert point.ids.tolist() == [0, 1, 3]  # of three equal tokens the lowest
        assert point.counts.tolist() == [1, 4, 3]

    def test_k_sqs_keeps_exactly_k(self) -> None:
        q = np.array([0, 0, 0.5, 0, 0.5, 0])
        assert lattice_codec("ksqs:4:8", 6).quantize(q).ids.tolist() == [0, 1, 2, 4]
        assert lattice_codec("ksqs:9:8", 6).quantize(q).ids.tolist() == [0, 1, 2, 3, 4, 5]

    @pytest.mark.parametrize(
        ("threshold", "ids"),
        [(-0.1, [0, 1, 2, 3, 4, 5]), (0, [0, 1, 2, 3, 4, 5]), (0.2, [1, 3]), (0.5, [1])],
    )
    def test_c_sqs_keeps_what_reaches_the_threshold(self, threshold: float, ids: list[int]) -> None:
        each = lattice_codec("csqs:0.3:10", 6)
        assert each.quantize(self.Q, threshold=threshold).ids.tolist() == ids
        assert each.quantize(3 * self.Q, threshold=threshold).ids.tolist() == ids

    def test_c_sqs_starts_from_its_own_threshold(self) -> None:
        assert lattice_codec("csqs:0.35:10", 6).quantize(self.Q).ids.tolist() == [1]

    def test_a_mass_at_the_threshold_is_kept(self) -> None:
        q = np.array([0.25, 0.75])
        assert lattice_codec("csqs:0.25:10", 2).quantize(q).ids.tolist() == [0, 1]


class TestToken:
    POINT = LatticePoint(np.array([2, 5, 7, 9, 11]), np.array([3, 0, 1, 1, 1]), 6, 20)

    @pytest.mark.parametrize(("token", "rank"), [(2, 0), (7, 1), (9, 2), (11, 3)])
    def test_it_travels_as_its_rank(self, token: int, rank: int) -> None:
        writer = BitWriter()
        write_token(self.POINT, token, writer)
        assert writer.bits == token_bits(self.POINT) == 2
        assert writer.to_bytes() == bytes((rank << 6,))
        assert read_token(self.POINT, BitReader(writer.to_bytes())) == token

    def test_a_certain_token_takes_no_bits(self) -> None:
        point = LatticePoint(np.array([2, 5]), np.array([0, 4]), 4, 20)
        assert token_bits(point) == 0
        assert read_token(point, BitReader(b"")) == 5

    @pytest.mark.parametrize("token", [0, 5, 12])
    def test_what_cannot_have_been_drafted_is_refused(self, token: int) -> None:
        with pytest.raises(CodecError, match="cannot have been drafted"):
            write_token(self.POINT, token, BitWriter())

    def test_a_rank_beyond_the_support_is_refused(self) -> None:
        point = LatticePoint(np.array([2, 5, 7]), np.array([1, 1, 1]), 3, 20)
        with pytest.raises(CodecError, match="token 3 of 3"):
            read_token(point, BitReader(b"\xff"))


@pytest.mark.parametrize("form", [lattice_codec, codec, block_codec])
def test_ill_formed_names_list_the_valid_ones(form: Callable[[str, int], object]) -> None:
    for name in (
        *("qs", "qs:", "qs:0", "qs:10001", "qs:1.5", "qs:1:2", "ksqs", "ksqs:3", "ksqs:0:100"),
        *("ksqs:-1:100", "csqs:2:100", "csqs:x:100", "csqs:0.1:100:3", "csqs:nan:100"),
    ):
        with pytest.raises(CodecError, match=r"qs:L, ksqs:K:L .*csqs:BETA:L"):
            form(name, 10)
