"""Next-token distributions as values, and the codecs that encode them as bits."""

from dragonrt.distributions.codec import codec
from dragonrt.distributions.distribution import Distribution, entropy, mix, total_variation
from dragonrt.distributions.lattice import ConformalThreshold, LatticePoint, backtrack
from dragonrt.distributions.protocol import (
    Codec,
    Quantized,
    Step,
    block_steps,
    decode_block,
    encode_block,
)
from dragonrt.errors import CodecError, DistributionError

__all__ = [
    "Codec",
    "CodecError",
    "ConformalThreshold",
    "Distribution",
    "DistributionError",
    "LatticePoint",
    "Quantized",
    "Step",
    "backtrack",
    "block_steps",
    "codec",
    "decode_block",
    "encode_block",
    "entropy",
    "mix",
    "total_variation",
]
