"""Errors of the package: what a distribution, or a codec's name or payload, got wrong."""

from dragonrt.errors import DragonError


class DistributionError(DragonError):
    """Distributions that cannot be combined."""


class CodecError(DistributionError):
    """A codec name, a vector or a payload that the codec refuses."""
