"""Messages as msgpack in frames, and back.

A message is the array `[TYPE, field, field, ...]`, so a draft costs few bytes beyond its payload.
Decoding bounds array lengths, rejects maps and extensions, and each message checks its fields.

A frame is a body after a 4-byte header, a big-endian integer. Bit 31: the body is an lz4 block,
after its original size. Bit 29: it is padded. Bits 30 and 28 are zero. Bits 27-0 are the length of
the body. This length and the original size are checked before anything is buffered.

Encryption does not hide the sizes of messages. In padded frames (SPEC 1.10) an observer sees
only one of SIZES, and nothing at a constant rate. The body of a padded frame is 4 bytes with the
length of its content, a piece of the stream of other frames, then zeros.
"""

from collections.abc import Collection
from typing import Any, Final

import lz4.block
import msgpack
from msgspec import ValidationError, convert
from msgspec.structs import astuple

from dragonrt.settings import BUILTIN, SettingError, hints, read
from dragonrt.wire.fields import MAX_32
from dragonrt.wire.messages import (
    CONNECTION_MESSAGES,
    PROTOCOL_VERSION,
    SESSION_MESSAGES,
    Hello,
    Message,
    SessionMessage,
)
from dragonrt.wire.reasons import MessageError, Reason, RemoteProtocolError

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
    """Return the frame (header and body) of `body`, compressed if allowed and if it shrinks."""
    flag = 0
    if compress and len(body) > COMPRESS_ABOVE:
        packed = lz4.block.compress(body)
        if len(packed) < len(body):
            body, flag = packed, _LZ4
    return (flag | len(body)).to_bytes(HEADER_BYTES, "big") + body


def padded_frame(content: bytes, size: int) -> bytes:
    """Return a padded frame of `size` bytes: 8 of headers, `content`, and zeros up to `size`."""
    header = (PADDED | (size - 4)).to_bytes(4, "big") + len(content).to_bytes(4, "big")
    return (header + content).ljust(size, b"\0")


def in_padded_frames(frame: bytes) -> bytes:
    """Return the bytes of padded frames that carry `frame`, in pieces if it exceeds one of them."""
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
    """A decoder of frames: `feed` adds received bytes, `next_body` returns complete bodies.

    `limit` is the most bytes of a body, before and after decompression, and bounds the buffer.
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
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def next_body(self) -> bytes | None:
        """Return the next body, None until it is complete; RemoteProtocolError if it is invalid."""
        while True:
            inner = self._inner
            if inner is not None and (body := inner.next_body()) is not None:
                self.frame_bytes = inner.frame_bytes
                return body
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
            if not header & PADDED:
                return _decompress(body, self.limit) if header & _LZ4 else body
            content = content_of(body)
            self.padding_bytes += self.frame_bytes - len(content)
            if inner is None:
                inner = self._inner = FrameDecoder(flags=_LZ4)  # padded frames do not nest
            inner.limit = self.limit
            inner.feed(content)

    @property
    def has_partial_frame(self) -> bool:
        """Return whether the buffer has the beginning of a frame that is not complete yet."""
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


LONGEST_ARRAY = 512  # limits the allocation by nested array headers

_BY_CODE: dict[int, type[Message]] = {}


def register(kind: type[Message]) -> None:
    """Register a message type under its TYPE, so that `decode` can return such messages."""
    _BY_CODE[kind.TYPE] = kind


for _each in (*CONNECTION_MESSAGES, *SESSION_MESSAGES):
    register(_each)


def encode(message: Message) -> bytes:
    """Return a message as the body of a frame: a msgpack array of its TYPE and its fields."""
    return bytes(msgpack.packb((message.TYPE, *astuple(message)), default=astuple))


def decode(body: bytes, expected: Collection[type[Message]] | None = None) -> Message:
    """Return the message in a frame's body; its type must be in `expected` (None: any type).

    Raises MessageError for other types, before their fields are read, and for invalid fields.
    """
    try:
        values = msgpack.unpackb(
            body, use_list=False, max_array_len=LONGEST_ARRAY, max_map_len=0, max_ext_len=0
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise MessageError(Reason.MALFORMED, f"a message is not valid msgpack: {error}") from None
    code = values[0] if type(values) is tuple and values else None
    kind = _BY_CODE.get(code) if type(code) is int else None
    if kind is None:
        raise MessageError(Reason.MALFORMED, "a message is not an array that starts with its type")
    if expected is not None and kind not in expected:
        text = f"a message of type {kind.__name__} may not come now"
        raise MessageError(Reason.OUT_OF_ORDER, text, _session(kind, values))
    version = values[1] if kind is Hello and len(values) > 1 else None
    if type(version) is int and version != PROTOCOL_VERSION:  # other fields may differ there
        raise MessageError(
            Reason.VERSION,
            f"the other side has version {version} of the protocol, this side version "
            f"{PROTOCOL_VERSION}: install the same dragonrt on both sides",
        )
    try:
        if len(values) == 1 + len(kind.__struct_fields__):
            return convert(values[1:], kind, builtin_types=BUILTIN)
        text = f"{len(values) - 1} fields instead of {len(kind.__struct_fields__)}"
    except MessageError as error:
        text = error.text
    except ValidationError as error:
        text = _fault(kind, values[1:]) or str(error)
    text = f"{kind.__name__}: {text}"
    raise MessageError(Reason.MALFORMED, text, _session(kind, values))


def _fault(kind: type[Message], values: tuple[Any, ...]) -> str | None:
    """Return what is wrong with the first field that is, in our words."""
    for name, value in zip(kind.__struct_fields__, values, strict=True):
        try:
            read(hints(kind)[name], value, name)
        except SettingError as error:
            return str(error)
    return None


def _session(kind: type[Message], values: tuple[Any, ...]) -> int | None:
    if not issubclass(kind, SessionMessage) or len(values) < 2:
        return None
    session = values[1]
    return session if type(session) is int and 0 <= session <= MAX_32 else None
