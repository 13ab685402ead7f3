"""Frames: a body after a 4-byte header, so that a stream of bytes becomes messages again.

The header is a big-endian integer. Bit 31: the body is an lz4 block, after its original size. Bit
29: it is padded. Bits 30 and 28 are zero. Bits 27-0 are the length of the body. The declared length
and the original size are checked before anything is buffered.

Encryption does not hide the sizes of messages. In padded frames (SPEC 1.10) an observer sees
only one of SIZES, and nothing at a constant rate. The body of a padded frame is 4 bytes with the
length of its content, a piece of the stream of other frames, then zeros.
"""

from typing import Final

import lz4.block

from dragonrt.wire.reasons import Reason, RemoteProtocolError

HEADER_BYTES = 4
MAX_BODY = 4 * 1024 * 1024
COMPRESS_ABOVE = 512  # encoded distributions grow under lz4; only long texts are worth a try
_LZ4 = 1 << 31
_LENGTH = (1 << 28) - 1

PADDED: Final = 1 << 29
PADDED_HEADER: Final = 8
"""Bytes of a padded frame before its content: the frame's header, and the content's length."""
SIZES: Final = (256, 1024, 4096, 16384)
"""Bytes of a padded frame. A draft fits into the smallest one, a question into the second."""
PACED: Final = 1024
"""Bytes of every frame at a constant rate."""


def encode_frame(body: bytes, *, compress: bool = True) -> bytes:
    """Return the frame of `body`, compressed if allowed and smaller."""
    flag = 0
    if compress and len(body) > COMPRESS_ABOVE:
        packed = lz4.block.compress(body)
        if len(packed) < len(body):
            body, flag = packed, _LZ4
    return (flag | len(body)).to_bytes(HEADER_BYTES, "big") + body


def padded_frame(content: bytes, size: int) -> bytes:
    """Return a frame of `size` bytes with `content`, of at most `size` - PADDED_HEADER bytes."""
    header = (PADDED | (size - 4)).to_bytes(4, "big") + len(content).to_bytes(4, "big")
    return (header + content).ljust(size, b"\0")


def in_padded_frames(frame: bytes) -> bytes:
    """Return a frame in the fewest bytes of padded frames that hold it."""
    most = SIZES[-1] - PADDED_HEADER
    pieces = [frame[start : start + most] for start in range(0, len(frame), most)]
    fitting = (next(s for s in SIZES if s >= len(piece) + PADDED_HEADER) for piece in pieces)
    return b"".join(padded_frame(piece, size) for piece, size in zip(pieces, fitting, strict=True))


def content_of(body: bytes) -> bytes:
    """Return the content of a padded frame's body. Raises RemoteProtocolError if it is invalid."""
    count = int.from_bytes(body[:4], "big")
    if len(body) < 4 or count > len(body) - 4:
        raise RemoteProtocolError(Reason.MALFORMED, "a padded frame is shorter than its content")
    return body[4 : 4 + count]


class FrameDecoder:
    """Read bytes in any split; return complete bodies.

    `limit` is the longest body, before and after decompression; it may change between frames. At
    most one such frame and the bytes of one `feed` are buffered, as are those of padded frames.
    """

    def __init__(self, limit: int = MAX_BODY, flags: int = _LZ4 | PADDED) -> None:
        self.limit = limit
        self._flags = flags
        self.frame_bytes = 0  # of the last frame of `next_body`, header included
        self.padding_bytes = 0  # of padded frames so far: bytes beside their contents
        self._inner: FrameDecoder | None = None  # decodes the contents of padded frames
        self._buffer = bytearray()
        self._start = 0

    def feed(self, data: bytes) -> None:
        """Buffer `data` for `next_body`."""
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def next_body(self) -> bytes | None:
        """Return the next body, None if more bytes are needed. Raises RemoteProtocolError."""
        while True:
            inner = self._inner
            if inner is not None and (body := inner.next_body()) is not None:
                self.frame_bytes = inner.frame_bytes
                return body
            found = self._next_frame()
            if found is None:
                return None
            header, body = found
            if not header & PADDED:
                return _decompress(body, self.limit) if header & _LZ4 else body
            self._unpad(content_of(body))

    def _unpad(self, content: bytes) -> None:
        self.padding_bytes += self.frame_bytes - len(content)
        if self._inner is None:
            self._inner = FrameDecoder(flags=_LZ4)  # padded frames do not nest
        self._inner.limit = self.limit
        self._inner.feed(content)

    def _next_frame(self) -> tuple[int, bytes] | None:
        start = self._start + HEADER_BYTES
        if len(self._buffer) < start:
            return None
        header = int.from_bytes(self._buffer[self._start : start], "big")
        length = header & _LENGTH
        if header & ~(self._flags | _LENGTH) or (header & PADDED and header & _LZ4):
            raise RemoteProtocolError(
                Reason.MALFORMED, "the other side does not speak this protocol"
            )
        if length > self.limit:
            raise _too_large(length, self.limit)
        end = start + length
        if len(self._buffer) < end:
            return None
        body = bytes(memoryview(self._buffer)[start:end])
        self.frame_bytes = HEADER_BYTES + length
        self._start = end
        return header, body

    @property
    def has_partial_frame(self) -> bool:
        """Return whether part of a frame is buffered."""
        inside = self._inner is not None and self._inner.has_partial_frame
        return inside or len(self._buffer) > self._start


def _decompress(body: bytes, limit: int) -> bytes:
    size = int.from_bytes(body[:4], "little")
    if size > limit:
        raise _too_large(size, limit)
    try:
        return bytes(lz4.block.decompress(body))
    except (lz4.block.LZ4BlockError, ValueError) as error:
        text = f"a compressed frame cannot be read: {error}"
        raise RemoteProtocolError(Reason.MALFORMED, text) from None


def _too_large(size: int, limit: int) -> RemoteProtocolError:
    text = f"the other side sent a frame of {size} bytes; at most {limit} are allowed here"
    return RemoteProtocolError(Reason.TOO_LARGE, text)
