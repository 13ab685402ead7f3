"""A next-token distribution as a value, and as bits."""

from dragonrt.distributions.codec import Codec, codec
from dragonrt.distributions.distribution import Distribution, entropy, mix, total_variation
from dragonrt.distributions.errors import CodecError, DistributionError

__all__ = [
    "Codec",
    "CodecError",
    "Distribution",
    "DistributionError",
    "codec",
    "entropy",
    "mix",
    "total_variation",
]
