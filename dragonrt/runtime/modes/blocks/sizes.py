"""How long what travels in a session of blocks may be, by the codec's name."""

from dragonrt.distributions import codec
from dragonrt.wire.limits import MAX_PAYLOAD, MAX_UPLOAD


def sends_lattice(name: str) -> bool:
    """Whether the codec of that name sends lattice points, which have a resolution."""
    return codec(name, 2).has_resolution


def longest_block(name: str) -> int:
    """The bytes that the payload of a block may have."""
    return min(codec(name, 2).longest, MAX_PAYLOAD)


def longest_upload(name: str) -> int:
    """The bytes that the payloads of an upload may have together."""
    return min(codec(name, 2).longest, MAX_UPLOAD)
