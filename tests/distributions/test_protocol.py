"""Blocks of every codec: they come back exactly, in the bits that were announced."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragonrt.distributions import (
    Codec,
    CodecError,
    Quantized,
    Step,
    block_steps,
    codec,
    decode_block,
    encode_block,
)
from tests.distributions.test_codec import refuses_other_lengths, same

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
PLAIN = [Step()]


def spread(rng: np.random.Generator, vocabulary: int = VOCABULARY) -> NDArray[np.float64]:
    return rng.dirichlet(np.full(vocabulary, 0.05))


def drafted(each: Codec, count: int, seed: int = 0) -> tuple[list[int], list[Quantized]]:
    """Tokens sampled from what each of `count` random distributions is quantized to."""
    rng = np.random.default_rng(seed)
    quantized = [each.quantize(spread(rng, each.vocabulary)) for _ in range(count)]
    dense = [one.distribution.to_dense() for one in quantized]
    return [int(rng.choice(q.size, p=q / q.sum())) for q in dense], quantized


def bits(quantized: list[Quantized]) -> int:
    return sum(one.bits + one.token_bits for one in quantized)


@pytest.fixture(params=NAMES)
def each(request: pytest.FixtureRequest) -> Codec:
    return codec(request.param, VOCABULARY)


class TestContract:
    @pytest.mark.parametrize("count", [0, 1, 2, 64])
    def test_round_trip(self, each: Codec, count: int) -> None:
        tokens, quantized = drafted(each, count)
        data = encode_block(each, tokens, quantized)
        assert len(data) == len(each.header) + -(-bits(quantized) // 8)
        decoded, distributions = decode_block(each, data, PLAIN * count)
        assert decoded == tokens
        if each.name == "ids":
            assert distributions is None
        else:
            assert distributions is not None
            pairs = zip(distributions, quantized, strict=True)
            assert all(same(sent, one.distribution) for sent, one in pairs)

    def test_other_lengths_and_counts_are_refused(self, each: Codec) -> None:
        data = encode_block(each, *drafted(each, 3))
        refuses_other_lengths(lambda other: decode_block(each, other, PLAIN * 3), data)
        for count in (2, 4):
            with pytest.raises(CodecError):
                decode_block(each, data, PLAIN * count)

    def test_padding_that_is_not_zero_is_refused(self, each: Codec) -> None:
        tokens, quantized = drafted(each, 3)
        if bits(quantized) % 8:
            data = bytearray(encode_block(each, tokens, quantized))
            data[-1] |= 1
            with pytest.raises(CodecError):
                decode_block(each, bytes(data), PLAIN * 3)

    def test_other_codecs_blocks_are_refused(self, each: Codec) -> None:
        for name in NAMES:
            if name != each.name:
                other = codec(name, VOCABULARY)
                with pytest.raises(CodecError):
                    decode_block(each, encode_block(other, *drafted(other, 2)), PLAIN * 2)

    @given(data=st.data())
    def test_only_codec_errors_escape(self, data: st.DataObject) -> None:
        """Damaged and random bytes are refused, or decode to tokens of some distributions."""
        each = codec(data.draw(st.sampled_from(NAMES)), VOCABULARY)
        block = bytearray(encode_block(each, *drafted(each, 2, data.draw(st.integers(0, 3)))))
        if data.draw(st.booleans()):
            at = data.draw(st.integers(1, min(len(block) - 1, 80)))
            block[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        else:
            block[1:] = data.draw(st.binary(max_size=60))
        resolutions = data.draw(st.lists(st.integers(-1, 20_000), max_size=3))
        try:
            tokens, distributions = decode_block(each, bytes(block), block_steps(0, 2, resolutions))
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
        each = codec("csqs:0.02:100", VOCABULARY)
        rng = np.random.default_rng(len(choices))
        steps = [Step(4, *choice) for choice in choices]
        quantized = [each.quantize(spread(rng), step) for step in steps]
        tokens = [int(one.distribution.ids[-1]) for one in quantized]
        data = encode_block(each, tokens, quantized)
        resolutions = [choice[0] for choice in choices]
        decoded, distributions = decode_block(each, data, block_steps(4, len(tokens), resolutions))
        assert decoded == tokens
        for sent, one in zip(distributions or [], quantized, strict=True):
            assert same(sent, one.distribution)

    def test_a_token_takes_the_bits_of_its_rank(self) -> None:
        one = codec("ksqs:64:100", 50_257).quantize(np.r_[np.ones(50), np.zeros(50_207)])
        assert (one.bits, one.token_bits, one.dropped) == (857, 6, 0.0)  # 50 tokens have mass

    def test_a_certain_token_takes_no_bits(self) -> None:
        each = codec("ksqs:2:4", 20)
        one = each.quantize(np.eye(20)[5])
        assert one.token_bits == 0
        data = encode_block(each, [5], [one])
        assert decode_block(each, data, PLAIN)[0] == [5]

    def test_a_token_outside_of_the_support_needs_its_id(self) -> None:
        q = np.r_[0.5, 0.5, np.zeros(VOCABULARY - 2)]
        each = codec("ksqs:16:100", VOCABULARY)
        for token in (2, 299):
            with pytest.raises(CodecError):
                encode_block(each, [token], [each.quantize(q)])
        by_id = codec("ksqs:16:100", VOCABULARY, tokens_by_id=True)
        one = by_id.quantize(q)
        data = encode_block(by_id, [299], [one])
        assert one.bits == each.quantize(q).bits
        assert (one.token_bits, each.quantize(q).token_bits) == (9, 1)  # among 300, or among two
        assert len(data) == 1 + -(-bits([one]) // 8)
        assert decode_block(by_id, data, PLAIN)[0] == [299]
        with pytest.raises(CodecError):
            decode_block(each, data, PLAIN)

    def test_a_rank_beyond_the_support_is_refused(self) -> None:
        each = codec("qs:3", 3)
        data = encode_block(each, [2], [each.quantize(np.ones(3))])  # 10 points in 4 bits, 3 ranks
        with pytest.raises(CodecError):
            decode_block(each, bytes((data[0], data[1] | 0b1100)), PLAIN)

    @pytest.mark.parametrize(("name", "other"), [("qs:60", "ids"), ("topp:0.8", "qs:60")])
    def test_what_another_codec_quantized_is_refused(self, name: str, other: str) -> None:
        tokens, quantized = drafted(codec(other, VOCABULARY), 1)
        with pytest.raises(CodecError):
            encode_block(codec(name, VOCABULARY), tokens, quantized)

    def test_the_bits_of_a_block_do_not_change_with_versions(self) -> None:
        each = codec("csqs:0.1:10", 16)
        one = each.quantize(np.r_[0.1, 0, 0.4, 0.0, 0.5, np.zeros(11)])
        assert encode_block(each, [4, 0], [one, one]).hex() == "182390811c8420"


def test_the_steps_of_a_block() -> None:
    assert block_steps(4, 2) == [Step(4), Step(5)]
    assert block_steps(4, 2, [7]) == [Step(4, 7), Step(5, 7)]
    assert block_steps(4, 2, [7, 8]) == [Step(4, 7), Step(5, 8)]
    assert block_steps(4, 0) == []
    with pytest.raises(CodecError):
        block_steps(0, 2, [60, 60, 60])


class TestIds:
    def test_only_ids_travel(self) -> None:
        each = codec("ids", 50_257)
        one = each.quantize(np.ones(50_257))
        assert (one.bits, one.token_bits, one.code, one.dropped) == (0, 16, None, 0.0)
        assert one.distribution.probabilities.sum() == pytest.approx(1)
        assert len(encode_block(each, [1, 50_256], [one, one])) == 1 + 4
        assert encode_block(each, [1, 50_256], []) == encode_block(each, [1, 50_256], [one, one])

    def test_an_id_beyond_the_vocabulary_is_refused(self) -> None:
        each = codec("ids", VOCABULARY)
        with pytest.raises(CodecError):
            decode_block(each, each.header + (300 << 7).to_bytes(2, "big"), PLAIN)

    def test_no_distribution_is_told(self) -> None:
        with pytest.raises(CodecError):
            codec("ids", 8).decode(codec("ids", 8).header)
