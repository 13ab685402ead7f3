"""Cells: what they carry comes out as it went in, however it is cut, and they have few sizes."""

import pytest

from dragonrt.wire.frames import (
    CELL,
    CELL_HEADER,
    SIZES,
    FrameDecoder,
    cell,
    content_of,
    encode_frame,
    in_cells,
)
from dragonrt.wire.reasons import RemoteProtocolError

BODIES = [b"", b"a", b"b" * 244, b"c" * 245, bytes(range(256)) * 100, b"d"]


def bodies(data: bytes, step: int) -> tuple[list[bytes], FrameDecoder]:
    decoder, found = FrameDecoder(), []
    for start in range(0, len(data), step):
        decoder.feed(data[start : start + step])
        while (body := decoder.next_body()) is not None:
            found.append(body)
    return found, decoder


@pytest.mark.parametrize("step", [1, 7, 10**6])
def test_frames_in_cells_come_out_as_they_went_in(step: int) -> None:
    cells = [in_cells(encode_frame(body)) for body in BODIES]
    plain = encode_frame(b"in the open")
    found, decoder = bodies(b"".join(cells) + plain, step)
    assert found == [*BODIES, b"in the open"]
    assert not decoder.has_partial_frame
    content = sum(len(encode_frame(body)) for body in BODIES)
    assert decoder.padding_bytes == sum(map(len, cells)) - content
    assert {len(each) for each in cells[:4]} == {256, 1024}


@pytest.mark.parametrize("size", [0, 1, 247, 248, 249, 1016, 1017, 16376, 16377, 100_000])
def test_cells_have_few_sizes(size: int) -> None:
    data, sizes = in_cells(b"y" * size), []
    while data:
        length = 4 + (int.from_bytes(data[:4], "big") & ~CELL)
        sizes.append(length)
        data = data[length:]
    assert set(sizes) <= set(SIZES)
    assert sum(sizes) - CELL_HEADER * len(sizes) >= size


@pytest.mark.parametrize(
    "body", [b"", b"\0\0\0", b"\0\0\0\1", (2**32 - 1).to_bytes(4, "big") + b"z" * 9]
)
def test_a_cell_that_is_none_ends_the_connection(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        content_of(body)
    decoder = FrameDecoder()
    decoder.feed((CELL | len(body)).to_bytes(4, "big") + body)
    with pytest.raises(RemoteProtocolError):
        decoder.next_body()


def test_no_cell_lies_in_a_cell_and_none_is_compressed() -> None:
    decoder = FrameDecoder()
    decoder.feed(cell(cell(b"", 256), 1024))
    with pytest.raises(RemoteProtocolError):
        decoder.next_body()
    decoder = FrameDecoder()
    decoder.feed((CELL | 2**31 | 4).to_bytes(4, "big") + b"\0\0\0\0")
    with pytest.raises(RemoteProtocolError):
        decoder.next_body()


def test_what_a_cell_carries_is_bounded_like_a_frame() -> None:
    decoder = FrameDecoder(limit=500)
    decoder.feed(cell((501).to_bytes(4, "big"), 256))
    with pytest.raises(RemoteProtocolError, match="501"):
        decoder.next_body()
