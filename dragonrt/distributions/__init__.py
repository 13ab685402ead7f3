"""A next-token distribution as a value, and as bits."""

from dragonrt.distributions.block_codec import BlockCodec, Quantized, block_codec
from dragonrt.distributions.codec import Codec, codec
from dragonrt.distributions.conformal import ConformalThreshold, backtrack
from dragonrt.distributions.distribution import Distribution, entropy, mix, total_variation
from dragonrt.distributions.errors import CodecError, DistributionError
from dragonrt.distributions.lattice import LatticePoint
from dragonrt.distributions.lattice_codec import LatticeCodec, lattice_codec

__all__ = [
    "BlockCodec",
    "Codec",
    "CodecError",
    "ConformalThreshold",
    "Distribution",
    "DistributionError",
    "LatticeCodec",
    "LatticePoint",
    "Quantized",
    "backtrack",
    "block_codec",
    "codec",
    "entropy",
    "lattice_codec",
    "mix",
    "total_variation",
]
