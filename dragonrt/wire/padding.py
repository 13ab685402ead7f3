"""Cells: frames of a few sizes that carry pieces of the stream of frames (SPEC 1.10).

The sizes of messages tell what is said, even where they are encrypted. In cells they show only as
one of SIZES; where one cell leaves at every tick, they do not show at all.

A cell is a frame with bit 29 of its header set. Its body is 4 bytes, how much of it counts, then
so many bytes of the inner stream of frames, then zeros.
"""

from typing import Final

from dragonrt.wire.reasons import Reason, RemoteProtocolError

CELL: Final = 1 << 29
HEADER_BYTES: Final = 8
"""Of the frame, and of what counts."""
SIZES: Final = (256, 1024, 4096, 16384)
"""Bytes of a cell on the wire. A draft takes the smallest one, a question the second."""
PACED: Final = 1024
"""Bytes of every cell of a cadence."""


def cell(content: bytes, size: int) -> bytes:
    """One cell of `size` bytes on the wire, which holds at most HEADER_BYTES less of content."""
    header = (CELL | (size - 4)).to_bytes(4, "big") + len(content).to_bytes(4, "big")
    return (header + content).ljust(size, b"\0")


def in_cells(frame: bytes) -> bytes:
    """A frame in as few bytes of cells as hold it."""
    most = SIZES[-1] - HEADER_BYTES
    pieces = [frame[start : start + most] for start in range(0, len(frame), most)]
    fitting = (next(s for s in SIZES if s >= len(piece) + HEADER_BYTES) for piece in pieces)
    return b"".join(cell(piece, size) for piece, size in zip(pieces, fitting, strict=True))


def content_of(body: bytes) -> bytes:
    """What the body of a cell carries. Raises RemoteProtocolError for one that is none."""
    count = int.from_bytes(body[:4], "big")
    if len(body) < 4 or count > len(body) - 4:
        raise RemoteProtocolError(Reason.MALFORMED, "a cell holds less than it says")
    return body[4 : 4 + count]
