"""The contract of every block codec: blocks come back exactly, in the bits that were announced."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragonrt.distributions import (
    BlockCodec,
    CodecError,
    Distribution,
    Quantized,
    block_codec,
    codec,
    lattice_codec,
)

NAMES = [
    "qs:60",
    "ksqs:16:100",
    "csqs:0.02:100",
    "ids",
    "dense:fp16",
    "topp:0.8",
    "topk:16:residual",
]
VOCABULARY = 300


def spread(rng: np.random.Generator, vocabulary: int = VOCABULARY) -> NDArray[np.float64]:
    return rng.dirichlet(np.full(vocabulary, 0.05))


def drafted(each: BlockCodec, count: int, seed: int = 0) -> tuple[list[int], list[Quantized]]:
    """Tokens sampled from what each of `count` random distributions is quantized to."""
    rng = np.random.default_rng(seed)
    quantized = [each.quantize(spread(rng, each.vocabulary)) for _ in range(count)]
    dense = [one.distribution.to_dense() for one in quantized]
    return [int(rng.choice(q.size, p=q / q.sum())) for q in dense], quantized


def same(a: Distribution, b: Distribution) -> bool:
    return (
        np.array_equal(a.ids, b.ids)
        and np.array_equal(a.probabilities, b.probabilities)
        and (a.rest, a.vocabulary) == (b.rest, b.vocabulary)
    )


@pytest.fixture(params=NAMES)
def each(request: pytest.FixtureRequest) -> BlockCodec:
    return block_codec(request.param, VOCABULARY)


class TestContract:
    def test_name_makes_the_same_codec(self, each: BlockCodec) -> None:
        assert block_codec(each.name, VOCABULARY) == each
        assert each.vocabulary == VOCABULARY

    @pytest.mark.parametrize("count", [0, 1, 2, 9])
    def test_round_trip(self, each: BlockCodec, count: int) -> None:
        tokens, quantized = drafted(each, count)
        data = each.encode(tokens, quantized)
        assert len(data) == 1 + -(-sum(one.bits for one in quantized) // 8)
        decoded, distributions = each.decode(data, count)
        assert decoded == tokens
        if each.name == "ids":
            assert distributions is None
        else:
            assert distributions is not None
            pairs = zip(distributions, quantized, strict=True)
            assert all(same(sent, one.distribution) for sent, one in pairs)

    def test_a_block_as_long_as_an_answer(self, each: BlockCodec) -> None:
        tokens, quantized = drafted(each, 64)
        assert each.decode(each.encode(tokens, quantized), 64)[0] == tokens

    def test_determinism(self, each: BlockCodec) -> None:
        assert each.encode(*drafted(each, 3)) == each.encode(*drafted(each, 3))

    def test_every_truncation_is_refused(self, each: BlockCodec) -> None:
        data = each.encode(*drafted(each, 3))
        for length in range(0, len(data), max(1, len(data) // 200)):
            with pytest.raises(CodecError):
                each.decode(data[:length], 3)

    def test_trailing_bytes_are_refused(self, each: BlockCodec) -> None:
        data = each.encode(*drafted(each, 3))
        for tail in (b"\0", b"\1"):
            with pytest.raises(CodecError, match="after its last field"):
                each.decode(data + tail, 3)

    def test_padding_that_is_not_zero_is_refused(self, each: BlockCodec) -> None:
        tokens, quantized = drafted(each, 3)
        if sum(one.bits for one in quantized) % 8:
            data = bytearray(each.encode(tokens, quantized))
            data[-1] |= 1
            with pytest.raises(CodecError, match="after its last field"):
                each.decode(bytes(data), 3)

    @pytest.mark.parametrize("count", [2, 4])
    def test_another_number_of_tokens_is_refused(self, each: BlockCodec, count: int) -> None:
        data = each.encode(*drafted(each, 3))
        with pytest.raises(CodecError):
            each.decode(data, count)

    def test_other_codecs_blocks_are_refused(self, each: BlockCodec) -> None:
        for name in NAMES:
            if name != each.name:
                other = block_codec(name, VOCABULARY)
                with pytest.raises(CodecError, match=r"not from the codec"):
                    each.decode(other.encode(*drafted(other, 2)), 2)

    @pytest.mark.parametrize("p", [np.ones(7), np.zeros(VOCABULARY), np.full(VOCABULARY, np.nan)])
    def test_what_is_no_distribution_is_refused(
        self, each: BlockCodec, p: NDArray[np.float64]
    ) -> None:
        with pytest.raises(CodecError):
            each.quantize(p)

    def test_quantizing_takes_any_scale_and_precision(self, each: BlockCodec) -> None:
        q = spread(np.random.default_rng(4))
        one, half = each.quantize(q), each.quantize(0.5 * q)
        assert same(one.distribution, half.distribution)
        assert one.dropped == pytest.approx(half.dropped, abs=1e-12)
        assert each.quantize(q.astype(np.float32)).distribution.vocabulary == VOCABULARY

    @given(data=st.data())
    def test_only_codec_errors_escape(self, data: st.DataObject) -> None:
        """Damaged and random bytes are refused, or decode to tokens of some distributions."""
        each = block_codec(data.draw(st.sampled_from(NAMES)), VOCABULARY)
        block = bytearray(each.encode(*drafted(each, 2, data.draw(st.integers(0, 3)))))
        if data.draw(st.booleans()):
            at = data.draw(st.integers(1, min(len(block) - 1, 80)))
            block[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        else:
            block[1:] = data.draw(st.binary(max_size=60))
        resolutions = data.draw(st.none() | st.lists(st.integers(-1, 20_000), max_size=3))
        try:
            tokens, distributions = each.decode(bytes(block), 2, resolutions)
        except CodecError:
            return
        assert all(0 <= token < VOCABULARY for token in tokens)
        for q in distributions or []:
            assert (np.diff(q.ids) > 0).all()
            assert 0 <= q.ids[0] <= q.ids[-1] < VOCABULARY
            assert q.probabilities.sum() + q.rest == pytest.approx(1, abs=1e-12)


class TestLattice:
    @given(st.lists(st.tuples(st.integers(1, 400), st.floats(-0.1, 1)), min_size=1, max_size=5))
    def test_resolution_and_threshold_of_every_token(
        self, choices: list[tuple[int, float]]
    ) -> None:
        each = block_codec("csqs:0.02:100", VOCABULARY)
        rng = np.random.default_rng(len(choices))
        quantized = [each.quantize(spread(rng), *choice) for choice in choices]
        tokens = [int(one.distribution.ids[-1]) for one in quantized]
        data = each.encode(tokens, quantized)
        decoded, distributions = each.decode(data, len(tokens), [choice[0] for choice in choices])
        assert decoded == tokens
        for sent, one in zip(distributions or [], quantized, strict=True):
            assert same(sent, one.distribution)

    def test_resolutions_of_another_number_of_tokens_are_refused(self) -> None:
        each = block_codec("qs:60", VOCABULARY)
        with pytest.raises(CodecError, match="2 tokens but 1 resolutions"):
            each.decode(each.encode(*drafted(each, 2)), 2, [60])

    def test_bits_are_those_of_the_point_and_the_rank(self) -> None:
        each = block_codec("ksqs:64:100", 50_257)
        one = each.quantize(np.r_[np.ones(50), np.zeros(50_207)])
        assert one.bits == 857 + 6  # 50 tokens have mass
        assert lattice_codec("ksqs:64:100", 50_257).bits(one.code) == 857
        assert one.dropped == 0.0

    def test_a_token_outside_of_the_support_needs_its_id(self) -> None:
        q = np.r_[0.5, 0.5, np.zeros(VOCABULARY - 2)]
        with pytest.raises(CodecError, match="cannot have been drafted"):
            (each := block_codec("ksqs:16:100", VOCABULARY)).encode([299], [each.quantize(q)])
        by_id = block_codec("ksqs:16:100", VOCABULARY, tokens_by_id=True)
        one = by_id.quantize(q)
        data = by_id.encode([299], [one])
        assert one.bits == each.quantize(q).bits - 1 + 9  # a rank among two, an id among 300
        assert len(data) == 1 + -(-one.bits // 8)
        assert by_id.decode(data, 1)[0] == [299]
        with pytest.raises(CodecError, match="not from the codec"):
            each.decode(data, 1)

    @pytest.mark.parametrize(("name", "other"), [("qs:60", "ids"), ("topp:0.8", "qs:60")])
    def test_what_another_codec_quantized_is_refused(self, name: str, other: str) -> None:
        tokens, quantized = drafted(block_codec(other, VOCABULARY), 1)
        with pytest.raises(CodecError, match="another codec"):
            block_codec(name, VOCABULARY).encode(tokens, quantized)

    def test_the_bits_of_a_block_do_not_change_with_versions(self) -> None:
        each = block_codec("csqs:0.1:10", 16)
        one = each.quantize(np.r_[0.1, 0, 0.4, 0.0, 0.5, np.zeros(11)])
        assert each.encode([4, 0], [one, one]).hex() == "03239084472100"


class TestPayloads:
    @pytest.mark.parametrize("name", ["dense:fp16", "topp:0.8", "topk:16:renorm"])
    def test_distributions_are_those_of_the_byte_codec(self, name: str) -> None:
        q = spread(np.random.default_rng(1))
        one = block_codec(name, VOCABULARY).quantize(q)
        payload = codec(name, VOCABULARY).encode(q)
        assert one.code == payload
        assert same(one.distribution, codec(name, VOCABULARY).decode(payload))
        assert one.bits == 5 + len(payload).bit_length() + 8 * len(payload) + 9

    def test_a_length_with_leading_zeros_is_refused(self) -> None:
        with pytest.raises(CodecError, match="valid length"):
            block_codec("topp:0.8", 8).decode(b"\x04\x10\0\0\0\0", 1)


class TestIds:
    def test_only_ids_travel(self) -> None:
        each = block_codec("ids", 50_257)
        one = each.quantize(np.ones(50_257))
        assert (one.bits, one.code, one.dropped) == (16, None, 0.0)
        assert one.distribution.probabilities.sum() == pytest.approx(1)
        assert len(each.encode([1, 50_256], [one, one])) == 1 + 4

    def test_an_id_beyond_the_vocabulary_is_refused(self) -> None:
        with pytest.raises(CodecError, match="beyond 300"):
            block_codec("ids", VOCABULARY).decode(b"\x05" + (300 << 7).to_bytes(2, "big"), 1)


def test_ill_formed_names_list_the_valid_ones() -> None:
    for name in ("", "id", "ids:3", "topp:2"):
        with pytest.raises(CodecError, match=r"ids, dense:fp16, .*topp:P.*ksqs:K:L.*csqs:BETA:L"):
            block_codec(name, VOCABULARY)
