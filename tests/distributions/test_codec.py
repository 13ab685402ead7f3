"""The contract of every codec, what each of them keeps, and few tokens with the bits of many."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragonrt.distributions import Codec, CodecError, Distribution, byte_codecs, codec, mix
from dragonrt.distributions import distribution as values

NAMES = [
    "dense:fp16",
    "dense:fp32",
    "topp:0.8",
    "topp:1",
    "topk:1:renorm",
    "topk:16:renorm",
    "topk:16:residual",
    "qs:150",
    "ksqs:16:96",
    "csqs:0.02:100",
]
VOCABULARY = 400


def spread(
    seed: int, vocabulary: int = VOCABULARY, concentration: float = 0.05
) -> NDArray[np.float64]:
    return np.random.default_rng(seed).dirichlet(np.full(vocabulary, concentration))


def encoded(each: Codec, p: NDArray[np.floating[Any]]) -> bytes:
    return each.encode(each.quantize(p))


def through(each: Codec, p: NDArray[np.floating[Any]]) -> Distribution:
    """What the other side reads, which is what the drafter sampled from, in the announced bits."""
    quantized = each.quantize(p)
    payload = each.encode(quantized)
    assert len(payload) == len(each.header) + -(-quantized.bits // 8)
    read = each.decode(payload)
    assert same(read, quantized.distribution)
    return read


def same(a: Distribution, b: Distribution) -> bool:
    return (
        np.array_equal(a.ids, b.ids)
        and np.array_equal(a.probabilities, b.probabilities)
        and a.rest == b.rest
        and a.vocabulary == b.vocabulary
    )


def refuses_other_lengths(read: Callable[[bytes], object], data: bytes) -> None:
    """Every truncation, and whatever trails, is a CodecError."""
    shorter = (data[:length] for length in range(0, len(data), max(1, len(data) // 200)))
    for other in (*shorter, *(data + tail for tail in (b"\0", b"\1", b"\xff" * 9))):
        with pytest.raises(CodecError):
            read(other)


@pytest.fixture(params=NAMES)
def each(request: pytest.FixtureRequest) -> Codec:
    return codec(request.param, VOCABULARY)


class TestContract:
    def test_name_makes_the_same_codec(self, each: Codec) -> None:
        assert codec(each.name, VOCABULARY) == each

    def test_reconstruction_is_a_distribution(self, each: Codec) -> None:
        for seed in range(20):
            double = spread(seed, concentration=10.0 ** (seed % 4 - 2))
            for p in (double, double.astype(np.float32)):
                q = through(each, p)
                assert q.vocabulary == VOCABULARY
                assert q.ids.dtype == np.int64
                assert q.probabilities.dtype == np.float64
                assert q.ids[0] >= 0
                assert q.ids[-1] < VOCABULARY
                assert (np.diff(q.ids) > 0).all()
                assert (q.probabilities > 0).all()
                assert q.rest >= 0
                assert q.probabilities.sum() + q.rest == pytest.approx(1, abs=1e-13)

    def test_the_most_likely_token_survives(self, each: Codec) -> None:
        for seed in range(20):
            p = spread(seed)
            q = through(each, p)
            assert q.probability(int(p.argmax())) == q.probabilities.max()

    def test_certainty_is_exact(self, each: Codec) -> None:
        p = np.zeros(VOCABULARY)
        p[VOCABULARY - 1] = 1
        q = through(each, p)
        assert q.ids.tolist() == [VOCABULARY - 1]
        assert q.probabilities.tolist() == [1.0]
        assert q.rest == 0

    def test_scale_does_not_matter(self, each: Codec) -> None:
        assert encoded(each, spread(4) * 0.5) == encoded(each, spread(4))

    def test_other_lengths_are_refused(self, each: Codec) -> None:
        refuses_other_lengths(each.decode, encoded(each, spread(5)))

    def test_other_codecs_payloads_are_refused(self, each: Codec) -> None:
        for name in NAMES:
            if name.split(":")[::2] != each.name.split(":")[::2] or "dense" in name:
                if name == each.name:
                    continue
                with pytest.raises(CodecError):
                    each.decode(encoded(codec(name, VOCABULARY), spread(7)))

    @pytest.mark.parametrize(
        "p",
        [
            np.full(VOCABULARY + 1, 1.0),
            np.full((1, VOCABULARY), 1.0),
            np.zeros(VOCABULARY),
            np.full(VOCABULARY, np.nan),
            np.r_[np.inf, np.ones(VOCABULARY - 1)],
            np.r_[-0.1, np.ones(VOCABULARY - 1)],
        ],
    )
    def test_what_is_no_distribution_is_refused(self, each: Codec, p: NDArray[np.float64]) -> None:
        with pytest.raises(CodecError):
            encoded(each, p)

    @given(data=st.data())
    def test_only_codec_errors_escape(self, data: st.DataObject) -> None:
        """Damaged and random bytes are refused, or decode to some distribution."""
        each = codec(data.draw(st.sampled_from(NAMES)), VOCABULARY)
        payload = bytearray(encoded(each, spread(data.draw(st.integers(0, 9)))))
        if data.draw(st.booleans()):
            at = data.draw(st.integers(0, min(len(payload) - 1, 80)))
            payload[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        else:
            payload[1:] = data.draw(st.binary(max_size=60))
        try:
            q = each.decode(bytes(payload))
        except CodecError:
            return
        assert (np.diff(q.ids) > 0).all()
        assert 0 <= q.ids[0] <= q.ids[-1] < VOCABULARY
        assert (q.probabilities > 0).all()
        assert q.probabilities.sum() + q.rest == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_light_codecs_never_touch_the_vocabulary(name: str) -> None:
    """A vocabulary of 2^30 would take gigabytes."""
    each = codec(name, VOCABULARY)
    if each.light:
        payload = encoded(each, spread(1))
        q = codec(name, 2**30).decode(payload)
        assert mix((q, q), (0.5, 0.5)).ids.tolist() == through(each, spread(1)).ids.tolist()
    assert each.light == (name.startswith("topp") or name.endswith("renorm"))


class TestMalformed:
    """Payloads written by hand: kind | low_bits << 3, count, values, ids."""

    ONE = (0x3C00).to_bytes(2, "little")

    def refused(self, payload: bytes, name: str = "topp:0.8") -> None:
        with pytest.raises(CodecError):
            codec(name, 8).decode(payload)

    def test_a_payload_by_hand(self) -> None:
        # Two tokens, no low bits: unary bits 1 and 3 stand for the ids 1 and 2.
        q = codec("topp:0.8", 8).decode(b"\x03\x02" + self.ONE * 2 + b"\x0a")
        assert q.ids.tolist() == [1, 2]
        assert q.probabilities.tolist() == [0.5, 0.5]

    @pytest.mark.parametrize(
        "payload",
        [
            b"\x03\x00\x01",  # no tokens
            b"\x03\x09" + ONE * 9 + b"\xff\x01",  # more than the vocabulary
            b"\x03\x82\x00" + ONE * 2 + b"\x0a",  # an overlong count
            b"\x03" + b"\xff" * 9,  # an endless one
            b"\x03\x01" + ONE + b"\x00\x01",  # too few ids
            b"\x0b\x01" + ONE + b"\x20",  # an id beyond the vocabulary
            b"\x0b\x02" + ONE * 2 + b"\x0c",  # an id twice
            b"\x0b\x02" + ONE * 2 + b"\x0d",  # ids that are not increasing
            b"\x03\x02" + ONE * 2 + b"\x02",  # one id for two tokens
            b"\x03\x02" + ONE * 2 + b"\x0b",  # three
        ],
    )
    def test_what_lists_no_set_of_tokens_is_refused(self, payload: bytes) -> None:
        self.refused(payload)

    def test_more_tokens_than_the_codec_keeps(self) -> None:
        self.refused(b"\x04\x02" + self.ONE * 2 + b"\x0a", "topk:1:renorm")
        self.refused(b"\x05\x08" + self.ONE * 9 + b"\xff", "topk:8:residual")  # and a rest

    def test_a_huge_count_allocates_nothing(self) -> None:
        with pytest.raises(CodecError):
            codec("topp:1", 2**30).decode(b"\xfb\xff\xff\xff\x7f" + self.ONE)

    @pytest.mark.parametrize("bits", [0x0000, 0x8000, 0x8001, 0xBC00, 0x3C01, 0x7C00, 0x7E00])
    def test_values_that_are_no_probabilities(self, bits: int) -> None:
        value = bits.to_bytes(2, "little")
        self.refused(b"\x03\x02" + value + self.ONE + b"\x0a")
        self.refused(b"\x05\x01" + self.ONE + value + b"\x02", "topk:3:residual")

    @pytest.mark.parametrize("name", ["dense:fp16", "dense:fp32"])
    @pytest.mark.parametrize("value", [-0.5, np.nan, np.inf, 1.5])
    def test_dense_values_that_are_no_probabilities(self, name: str, value: float) -> None:
        dtype = "<f2" if name == "dense:fp16" else "<f4"
        tag = encoded(codec(name, 8), np.ones(8))[:1]
        values = np.r_[value, np.ones(7)].astype(dtype)
        self.refused(tag + values.tobytes(), name)

    @pytest.mark.parametrize("name", ["dense:fp16", "dense:fp32"])
    def test_dense_zero_total(self, name: str) -> None:
        payload = encoded(codec(name, 8), np.ones(8))
        self.refused(payload[:1] + bytes(len(payload) - 1), name)


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            *("", "dense", "dense:fp64", "topp", "topp:0", "topp:1.01", "topp:-1", "topp:x"),
            *("topp:nan", "topp:inf", "topp:².5", "topp:1_0", "TOPP:0.8", " topp:0.8", "topp:0.8 "),
            *("topk:3", "topk:0:renorm", "topk:-3:renorm", "topk:2.5:renorm", "topk:3:other"),
            *(
                "topk:3:renorm:x",
                "id",
                "ids:3",
                "qs",
                "qs:",
                "qs:0",
                "qs:10001",
                "qs:1.5",
                "qs:1:2",
            ),
            *("qs:1:2", "ksqs", "ksqs:3", "ksqs:0:100", "ksqs:-1:100", "csqs:2:100", "csqs:x:100"),
            *("csqs:0.1:100:3", "csqs:nan:100", "race", "race:0.1"),
        ],
    )
    def test_ill_formed_names_are_refused(self, name: str) -> None:
        with pytest.raises(CodecError):
            codec(name, VOCABULARY)

    @pytest.mark.parametrize("vocabulary", [0, -1, 2**31])
    def test_a_vocabulary_that_cannot_be_coded(self, vocabulary: int) -> None:
        with pytest.raises(CodecError):
            codec("topp:0.8", vocabulary)


class TestWhatIsKept:
    def test_residual_of_nothing_is_exactly_nothing(self) -> None:
        p = np.zeros(VOCABULARY)
        p[[3, 70, 300]] = 0.3, 0.6, 0.1
        each = codec("topk:16:residual", VOCABULARY)
        assert through(each, p).rest == 0

    def test_entries_below_fp16_are_not_listed(self) -> None:
        p = np.full(VOCABULARY, 1e-9)
        p[7] = 1
        for name in ("dense:fp16", "topp:1", "topk:16:renorm", "topk:16:residual"):
            q = through(codec(name, VOCABULARY), p)
            assert q.ids.tolist() == [7]


class TestSize:
    @pytest.mark.parametrize(("token", "size"), [(0, 5), (100, 5), (8191, 6), (151_935, 7)])
    def test_one_entry(self, token: int, size: int) -> None:
        p = np.zeros(151_936)
        p[token] = 1
        for name in ("topp:0.8", "topk:64:renorm", "topk:64:residual"):
            assert len(encoded(codec(name, p.size), p)) == size

    def test_large_vocabulary(self) -> None:
        rng = np.random.default_rng(8)
        p = np.zeros(151_936)
        ids = np.sort(np.r_[rng.choice(151_900, 60, replace=False), [65_535, 65_536, 151_935]])
        p[ids] = rng.dirichlet(np.full(63, 5.0))
        for name in ("topp:1", "topk:63:renorm", "topk:63:residual", "dense:fp16"):
            each = codec(name, p.size)
            q = through(each, p)
            assert q.ids.tolist() == ids.tolist()
            assert np.allclose(q.probabilities, p[ids], rtol=2**-10)


T = TypeVar("T")

V = 300
TAILS = st.lists(st.integers(0, V - 1), min_size=1, max_size=values.FEW // 2, unique=True)


def both_ways(compute: Callable[[], T]) -> tuple[T, T]:
    with pytest.MonkeyPatch.context() as patched:
        one_by_one = compute()
        for module in (values, byte_codecs):
            patched.setattr(module, "FEW", 0)
        return one_by_one, compute()


@given(
    TAILS, st.integers(0, 2**32), st.sampled_from(["topp:0.9", "topk:7:renorm", "topk:7:residual"])
)
def test_payloads_are_the_same(tokens: list[int], seed: int, name: str) -> None:
    p = np.full(V, 1e-9)
    p[tokens] = np.random.default_rng(seed).exponential(size=len(tokens)) ** 4
    p = p.astype(np.float32) / p.sum()
    code = codec(name, V)
    few, many = both_ways(lambda: code.encode(code.quantize(p)))
    assert few == many
    read, again = both_ways(lambda: code.decode(few))
    assert np.array_equal(read.ids, again.ids)
    assert read.probabilities.tobytes() == again.probabilities.tobytes()
    assert (read.rest, read.ids.dtype) == (again.rest, again.ids.dtype)


@given(TAILS, TAILS, st.integers(0, 2**32), st.booleans())
def test_mixtures_are_the_same(one: list[int], other: list[int], seed: int, rest: bool) -> None:
    chance = np.random.default_rng(seed)
    sides = []
    for tokens in (one, other):
        p = chance.dirichlet(np.ones(len(tokens) + rest))
        left = float(p[-1]) if rest else 0.0
        sides.append(values.Distribution(np.sort(tokens), p[: len(tokens)], left, V))
    few, many = both_ways(lambda: mix(sides, (0.3, 0.7)))
    assert np.array_equal(few.ids, many.ids)
    assert few.probabilities.tobytes() == many.probabilities.tobytes()
    assert few.rest == many.rest
