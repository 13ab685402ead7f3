"""Bit strings and sets of token ids: they come back as written, and nothing else is read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.distributions import CodecError
from dragonrt.distributions.byte_codecs import decode_support, encode_support, low_bits_of
from dragonrt.distributions.protocol import BitReader, BitWriter

FIELDS = st.lists(
    st.integers(0, 200).flatmap(lambda b: st.tuples(st.integers(0, 2**b - 1), st.just(b)))
)


@given(FIELDS)
def test_fields_come_back_and_the_first_stands_in_the_highest_bits(
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
