"""Bit strings: fields come back as written, and nothing is read that was not written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.distributions import CodecError
from dragonrt.distributions.protocol import BitReader, BitWriter

FIELDS = st.lists(
    st.integers(0, 200).flatmap(lambda b: st.tuples(st.integers(0, 2**b - 1), st.just(b)))
)


def written(fields: list[tuple[int, int]]) -> BitWriter:
    writer = BitWriter()
    for value, bits in fields:
        writer.write(value, bits)
    return writer


@given(FIELDS)
def test_round_trip(fields: list[tuple[int, int]]) -> None:
    writer = written(fields)
    total = sum(bits for _, bits in fields)
    data = writer.to_bytes()
    assert writer.bits == total
    assert len(data) == -(-total // 8)
    reader = BitReader(data)
    assert [reader.read(bits) for _, bits in fields] == [value for value, _ in fields]
    reader.finish()


@given(FIELDS)
def test_the_first_field_stands_in_the_highest_bits(fields: list[tuple[int, int]]) -> None:
    text = "".join(f"{value:0{bits}b}" for value, bits in fields if bits)
    padded = text + "0" * (-len(text) % 8)
    assert written(fields).to_bytes() == int(padded or "0", 2).to_bytes(len(padded) // 8, "big")


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
