"""QS, K-SQS and C-SQS: rounding, points in as many bits as the formula, thresholds (SQS Thm. 2)."""

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragonrt.distributions import (
    Codec,
    CodecError,
    ConformalThreshold,
    Distribution,
    LatticePoint,
    Quantized,
    Step,
    backtrack,
    block_steps,
    codec,
    decode_block,
    total_variation,
)
from dragonrt.distributions.lattice import (
    LatticeCodec,
    dropped_mass,
    round_to_lattice,
    theorem2_bound,
)
from dragonrt.distributions.protocol import BitReader, BitWriter
from tests.distributions.test_codec import same
from tests.oracles.brute_force import coded


@given(st.integers(0, 2**32), st.integers(1, 300), st.integers(1, 1000), st.floats(0.01, 3))
def test_rounding(seed: int, size: int, resolution: int, concentration: float) -> None:
    q = np.random.default_rng(seed).dirichlet(np.full(size, concentration))
    counts = round_to_lattice(q, resolution)
    right = coded(f"qs:{resolution}", q).p
    assert counts.tolist() == (resolution * right).round().astype(int).tolist()
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


def point_of(quantized: Quantized) -> LatticePoint:
    assert isinstance(quantized.code, LatticePoint)
    return quantized.code


def written(each: Codec, quantized: Quantized) -> BitWriter:
    writer = BitWriter()
    each.write(quantized, writer)
    return writer


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
    each, step = codec(name, vocabulary), Step(0, resolution, threshold)
    quantized = each.quantize(q, step)
    point = point_of(quantized)
    assert point.resolution == (resolution or int(name.split(":")[-1]))
    assert (np.diff(point.ids) > 0).all()
    writer = written(each, quantized)
    assert writer.bits == quantized.bits
    assert writer.bits == formula(name, vocabulary, point.ids.size, point.resolution)
    reader = BitReader(writer.to_bytes())
    assert same(each.read(reader, step)(), quantized.distribution)
    reader.finish()


@pytest.mark.parametrize("name", ["qs:3", "ksqs:2:3", "csqs:0.1:3"])
def test_every_bit_string_is_one_point_or_refused(name: str) -> None:
    """Over four tokens, every string: what is read are all points there are, each just once."""
    each = codec(name, 4)
    assert isinstance(each, LatticeCodec)
    sizes = {"qs:3": [4], "ksqs:2:3": [2], "csqs:0.1:3": [1, 2, 3, 4]}[name]
    longest = max(formula(name, 4, k, 3) for k in sizes)
    strings: dict[tuple[object, ...], tuple[int, int]] = {}
    for value in range(2**longest):
        string = BitWriter()
        string.write(value, longest)
        try:
            point = each.read_point(BitReader(string.to_bytes()))()
        except CodecError:
            continue
        bits = formula(name, 4, point.ids.size, 3)
        read = (bits, value >> (longest - bits))
        assert strings.setdefault((*point.ids.tolist(), *point.counts.tolist()), read) == read
        writer = written(each, Quantized(point.distribution(), bits, 0, point, 0.0))
        writer.write(value & ((1 << (longest - bits)) - 1), longest - bits)
        assert writer.to_bytes() == string.to_bytes()
    assert len(strings) == sum(comb(4, k) * comb(3 + k - 1, k - 1) for k in sizes)


def test_ranks_out_of_range_are_refused() -> None:
    with pytest.raises(CodecError):
        codec("qs:3", 4).read(BitReader(b"\xff"))  # 20 points in 5 bits
    with pytest.raises(CodecError):
        codec("ksqs:2:3", 4).read(BitReader(b"\xff"))  # 6 sets in 3 bits
    with pytest.raises(CodecError):
        codec("csqs:0.1:3", 5).read(BitReader(b"\xa0\0\0"))


def test_a_large_set_that_is_not_there_costs_nothing() -> None:
    """Half of a vocabulary announced in a few bytes is refused before anything is computed."""
    with pytest.raises(CodecError):
        codec("csqs:0.1:100", 151_936).read(BitReader(b"\x80" * 20))


@pytest.mark.parametrize("name", ["ksqs:8192:10000", "qs:10000"])
@pytest.mark.parametrize("fill", [b"\0", b"\x40", b"\x7f", b"\xff"])
def test_garbage_is_refused_before_a_point_is_computed(
    name: str, fill: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def computed(*_: object) -> None:
        raise AssertionError("this takes tens of milliseconds")

    monkeypatch.setattr("dragonrt.distributions.lattice.unrank_subset", computed)
    monkeypatch.setattr("dragonrt.distributions.lattice.unrank_composition", computed)
    each = codec(name, 151_936)
    for length in (100, 10_000, 32_767):
        data = each.header + fill * length
        with pytest.raises(CodecError):
            each.decode(data)
        with pytest.raises(CodecError):
            decode_block(each, data, block_steps(0, 2))


@pytest.mark.parametrize("resolution", [0, -1, 10_001])
@pytest.mark.parametrize("name", NAMES)
def test_a_resolution_out_of_range_is_refused(name: str, resolution: int) -> None:
    each, step = codec(name, 10), Step(0, resolution)
    with pytest.raises(CodecError):
        each.quantize(np.ones(10), step)
    with pytest.raises(CodecError):
        each.read(BitReader(bytes(50)), step)


class TestWhatIsKept:
    Q = np.array([0.1, 0.4, 0.1, 0.3, 0.0, 0.1])

    def test_k_sqs_keeps_exactly_k(self) -> None:
        q = np.array([0, 0, 0.5, 0, 0.5, 0])
        assert point_of(codec("ksqs:4:8", 6).quantize(q)).ids.tolist() == [0, 1, 2, 4]
        assert point_of(codec("ksqs:9:8", 6).quantize(q)).ids.tolist() == [0, 1, 2, 3, 4, 5]

    @pytest.mark.parametrize(
        ("threshold", "ids"),
        [(-0.1, [0, 1, 2, 3, 4, 5]), (0, [0, 1, 2, 3, 4, 5]), (0.2, [1, 3]), (0.5, [1])],
    )
    def test_c_sqs_keeps_what_reaches_the_threshold(self, threshold: float, ids: list[int]) -> None:
        each, step = codec("csqs:0.3:10", 6), Step(threshold=threshold)
        assert point_of(each.quantize(self.Q, step)).ids.tolist() == ids
        assert point_of(each.quantize(3 * self.Q, step)).ids.tolist() == ids

    def test_c_sqs_starts_from_its_own_threshold(self) -> None:
        assert point_of(codec("csqs:0.35:10", 6).quantize(self.Q)).ids.tolist() == [1]

    def test_a_mass_at_the_threshold_is_kept(self) -> None:
        q = np.array([0.25, 0.75])
        assert point_of(codec("csqs:0.25:10", 2).quantize(q)).ids.tolist() == [0, 1]


VOCABULARY = 40
CODEC = codec("csqs:0.5:100", VOCABULARY)


def just_below(beta: float) -> NDArray[np.float64]:
    """The adversary's distribution: as much mass as possible just below the threshold."""
    each = min(max(beta * 0.999, 1 / VOCABULARY), 1.0)
    q = np.full(VOCABULARY, 0.0)
    whole = min(int(1 / each), VOCABULARY)
    q[:whole] = each
    q[-1] += 1 - q.sum()
    adversary: NDArray[np.float64] = np.abs(q) / np.abs(q).sum()
    return adversary


def run(
    q: NDArray[np.float64] | None, threshold: ConformalThreshold, tokens: int, seed: int
) -> tuple[list[float], ConformalThreshold]:
    """The masses dropped over so many tokens (`q` None: the adversary or a random one by turns)."""
    rng = np.random.default_rng(seed)
    dropped = []
    for _ in range(tokens):
        drawn = rng.dirichlet(np.full(VOCABULARY, 10.0 ** rng.integers(-2, 2)))
        next_q = q if q is not None else just_below(threshold.beta) if rng.random() < 0.7 else drawn
        dropped.append(CODEC.quantize(next_q, Step(threshold=threshold.beta)).dropped)
        threshold = threshold.after(dropped[-1])
    return dropped, threshold


@pytest.mark.parametrize("eta", [0.001, 0.05, 1.0])
@pytest.mark.parametrize("beta_1", [0.0, 0.02, 1.0])
@pytest.mark.parametrize("alpha", [0.0005, 0.2])
def test_theorem_2(eta: float, beta_1: float, alpha: float) -> None:
    """At every T, against the adversary mixed with random distributions, and against uniform."""
    for q in (None, np.full(VOCABULARY, 1 / VOCABULARY)):
        start = ConformalThreshold(beta_1, eta, alpha)
        dropped, end = run(q, start, 60, seed=7)
        for tokens in range(1, len(dropped) + 1):
            assert np.mean(dropped[:tokens]) <= theorem2_bound(tokens, beta_1, eta, alpha)
        identity = alpha + (beta_1 - end.beta) / (eta * len(dropped))  # SQS Lemma 2
        assert np.mean(dropped) == pytest.approx(identity, abs=1e-9)
        assert end.beta >= -eta * (1 - alpha)  # SQS Lemma 4, the half that Theorem 2 needs


@pytest.mark.slow
def test_a_horizon_divides_both_rates_by_its_root() -> None:
    """SQS App. A.3: η and α of the order of 1/√T."""
    assert ConformalThreshold.first(0.1, 0.5, 0.25, 100) == ConformalThreshold(0.1, 0.05, 0.025)
    assert ConformalThreshold.first(0.1, 0.5, 0.25, None) == ConformalThreshold(0.1, 0.5, 0.25)


def test_the_bound_by_hand() -> None:
    assert theorem2_bound(1000, 0.1, 0.001, 0.0005) == pytest.approx(0.0005 + 1.1000005)
    assert theorem2_bound(10, -0.2, 0.5, 0.1) == pytest.approx(0.1 + 1.25 / 5)


def test_one_update() -> None:
    assert ConformalThreshold(0.01).after(0.0105).beta == pytest.approx(0.01 - 0.001 * 0.01)
    assert ConformalThreshold(0.01).after(0.0).beta > 0.01


MASSES = st.lists(st.floats(0, 1), max_size=12)


@given(MASSES, st.integers(0, 12), st.floats(-0.1, 1))
def test_backtracking_forgets_what_was_rejected(
    dropped: list[float], accepted: int, beta: float
) -> None:
    """It equals a run that never drafted beyond the new token, whatever was drafted there."""
    accepted = min(accepted, len(dropped))
    start = ConformalThreshold(beta, eta=0.05, alpha=0.1)
    stood = dropped[: accepted + 1]
    if stood and accepted == len(dropped):
        stood.append(stood[-1])
    recomputed = start
    for mass in stood:
        recomputed = recomputed.after(mass)
    assert backtrack(start, dropped, accepted) == recomputed


def test_an_accepted_batch_uses_the_known_mass_of_the_new_token() -> None:
    start = ConformalThreshold(0.2, eta=0.5, alpha=0.1)
    drafted = start.after(0.3).after(0.4)
    assert backtrack(start, [0.3, 0.4], 2) == drafted.after(0.4)
    assert backtrack(start, [0.3, 0.4, 0.05], 2) == drafted.after(0.05)
    assert backtrack(start, [0.3, 0.4], 0) == start.after(0.3)
    assert backtrack(start, [], 0) == start


@given(st.integers(0, 2**32), st.sampled_from([None, 0.001, 0.03, 0.2]), st.integers(1, 200))
def test_theorem_1(seed: int, threshold: float | None, resolution: int) -> None:
    """TV(q̂, p), by which a token is rejected, is at most TV(q, p) + dropped mass + K/(4ℓ)."""
    rng = np.random.default_rng(seed)
    q, p = (rng.dirichlet(np.full(VOCABULARY, 0.2)) for _ in range(2))
    quantized = CODEC.quantize(q, Step(0, resolution, threshold))
    assert isinstance(quantized.code, LatticePoint)
    target = Distribution.from_dense(p)
    discrepancy = total_variation(Distribution.from_dense(q), target)
    lattice = quantized.code.ids.size / (4 * resolution)
    bound = discrepancy + quantized.dropped + lattice
    assert total_variation(quantized.distribution, target) <= bound + 1e-12
