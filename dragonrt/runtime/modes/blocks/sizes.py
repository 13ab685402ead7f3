"""How long what travels in a session of blocks may be, by the codec's name."""

from dragonrt.distributions.lattice_codec import LATTICE_FAMILIES
from dragonrt.wire.limits import MAX_PAYLOAD, MAX_UPLOAD

LONGEST_LATTICES = 32 * 1024
"""Bytes of lattice points in a message: each takes up to 30 us to write, and as long to read."""


def sends_lattice(codec: str) -> bool:
    """Whether the codec of that name sends lattice points, which have a resolution."""
    return codec.split(":")[0] in LATTICE_FAMILIES


def longest_block(codec: str) -> int:
    """The bytes that the payload of a block may have."""
    return LONGEST_LATTICES if sends_lattice(codec) else MAX_PAYLOAD


def longest_upload(codec: str) -> int:
    """The bytes that the payloads of an upload may have together."""
    return LONGEST_LATTICES if sends_lattice(codec) else MAX_UPLOAD
