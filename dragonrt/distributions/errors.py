"""Errors of the package: what a distribution, or a codec's name or payload, got wrong."""

from dragonrt.errors import DragonError


class DistributionError(DragonError):
    """Distributions that cannot be combined."""


class CodecError(DistributionError):
    """A codec name, a vector or a payload that the codec refuses."""


def other_codec(name: str) -> CodecError:
    """The error of a payload that the codec `name` did not write."""
    return CodecError(f"payload is not from the codec {name}; use one codec on both sides")
