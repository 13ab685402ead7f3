"""Frames come out as they went in, whatever the split, and nothing too large is kept."""

import os
from itertools import pairwise

import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.wire.encoding import (
    COMPRESS_ABOVE,
    HEADER_BYTES,
    MAX_BODY,
    PADDED,
    PADDED_HEADER,
    SIZES,
    FrameDecoder,
    content_of,
    encode_frame,
    in_padded_frames,
    padded_frame,
)
from dragonrt.wire.reasons import Reason, RemoteProtocolError

LZ4 = 1 << 31


def bodies(decoder: FrameDecoder, *chunks: bytes) -> list[bytes]:
    out = []
    for chunk in chunks:
        decoder.feed(chunk)
        out += list(iter(decoder.next_body, None))
    return out


BODY = st.one_of(st.binary(max_size=30), st.integers(0, 2000).map(lambda n: b"ab" * n))


@given(st.lists(BODY, max_size=5), st.data())
def test_any_split_gives_the_bodies_back(sent: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(encode_frame, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    edges = [0, *cuts, len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(edges)]
    decoder = FrameDecoder()
    assert bodies(decoder, *chunks) == sent
    assert not decoder.has_partial_frame


def test_compression_only_where_it_helps() -> None:
    compressible, short, random = b"ab" * 1000, b"a" * COMPRESS_ABOVE, os.urandom(2000)
    assert len(encode_frame(compressible)) < 100
    assert len(encode_frame(compressible, compress=False)) == HEADER_BYTES + 2000
    assert len(encode_frame(short)) == HEADER_BYTES + COMPRESS_ABOVE
    assert len(encode_frame(random)) == HEADER_BYTES + 2000


def test_frame_bytes_counts_what_travelled() -> None:
    decoder = FrameDecoder()
    for body in (b"ab" * 1000, b"abc", b""):
        frame = encode_frame(body)
        assert bodies(decoder, frame) == [body]
        assert decoder.frame_bytes == len(frame)


def refused(data: bytes, limit: int = MAX_BODY) -> Reason:
    """Why a frame ends the connection."""
    decoder = FrameDecoder(limit)
    decoder.feed(data)
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next_body()
    return caught.value.reason


def packed(block: bytes) -> bytes:
    return (LZ4 | len(block)).to_bytes(4, "big") + block


def test_the_limit_holds_before_a_body_has_come_or_is_unpacked() -> None:
    assert bodies(FrameDecoder(limit=10), encode_frame(b"x" * 10)) == [b"x" * 10]
    assert refused((11).to_bytes(4, "big"), limit=10) is Reason.TOO_LARGE
    assert refused(packed(lz4.block.compress(bytes(MAX_BODY + 1)))) is Reason.TOO_LARGE
    assert refused(padded_frame((501).to_bytes(4, "big"), 256), limit=500) is Reason.TOO_LARGE


@pytest.mark.parametrize(
    "data",
    [
        packed(b""),
        packed(b"\x01"),
        packed(b"\x05\x00\x00\x00"),
        packed(b"\x05\x00\x00\x00garbage"),
        packed((100).to_bytes(4, "little") + lz4.block.compress(b"a" * 50)[4:]),
        packed((10).to_bytes(4, "little") + lz4.block.compress(b"a" * 50)[4:]),
        *((1 << bit).to_bytes(4, "big") for bit in (28, 29, 30)),  # reserved
        padded_frame(padded_frame(b"", 256), 1024),  # one in another
        (PADDED | LZ4 | 4).to_bytes(4, "big") + b"\0\0\0\0",  # compressed
    ],
)
def test_a_frame_that_is_none_is_refused(data: bytes) -> None:
    assert refused(data) is Reason.MALFORMED


# Padded frames.

BODIES = [b"", b"a", b"b" * 244, b"c" * 245, bytes(range(256)) * 100, b"d"]


@pytest.mark.parametrize("step", [1, 7, 10**6])
def test_frames_in_padded_frames_come_out_as_they_went_in(step: int) -> None:
    frames = [in_padded_frames(encode_frame(body)) for body in BODIES]
    plain = encode_frame(b"in the open")
    data, decoder = b"".join(frames) + plain, FrameDecoder()
    found = bodies(decoder, *(data[start : start + step] for start in range(0, len(data), step)))
    assert found == [*BODIES, b"in the open"]
    assert not decoder.has_partial_frame
    content = sum(len(encode_frame(body)) for body in BODIES)
    assert decoder.padding_bytes == sum(map(len, frames)) - content
    assert {len(each) for each in frames[:4]} == {256, 1024}


@pytest.mark.parametrize("size", [0, 1, 247, 248, 249, 1016, 1017, 16376, 16377, 100_000])
def test_padded_frames_have_few_sizes(size: int) -> None:
    data, sizes = in_padded_frames(b"y" * size), []
    while data:
        length = 4 + (int.from_bytes(data[:4], "big") & ~PADDED)
        sizes.append(length)
        data = data[length:]
    assert set(sizes) <= set(SIZES)
    assert sum(sizes) - PADDED_HEADER * len(sizes) >= size


@pytest.mark.parametrize(
    "body", [b"", b"\0\0\0", b"\0\0\0\1", (2**32 - 1).to_bytes(4, "big") + b"z" * 9]
)
def test_a_padded_frame_that_is_none_ends_the_connection(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        content_of(body)
    assert refused((PADDED | len(body)).to_bytes(4, "big") + body) is Reason.MALFORMED
