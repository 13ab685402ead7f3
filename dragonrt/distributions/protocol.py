"""Distributions as bits: what a side sends, and what the other side reconstructs from it.

A draft is sampled from what the other side will reconstruct ("quantize, then sample", QSV Prop. 1),
so whatever a codec throws away, the text stays exact with respect to what was sent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions.bits import BitReader, BitWriter
from dragonrt.distributions.distribution import Distribution
from dragonrt.distributions.lattice import LatticePoint
from dragonrt.errors import CodecError


class StepNoise(Protocol):
    """The keyed noise of one step, which both sides know: what probabilities race with."""

    def __call__(
        self, vocabulary: int, ids: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Positive numbers of the tokens `ids`, float64 [K], or without them of all: [V]."""

    def below(self, vocabulary: int, bound: float) -> NDArray[np.int64]:
        """All tokens with a number below `bound`, int64, increasing, and maybe some above it."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a codec may know of a token beside its distribution; both sides know it.

    `index` is the token's place in the answer. `resolution` and `threshold` take the place of the
    ℓ and the β in a codec's name; codecs that have none ignore them.
    """

    index: int = 0
    resolution: int | None = None
    threshold: float | None = None
    noise: StepNoise | None = None


PLAIN = Step()
"""A step of which nothing is known: codecs go by their names alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """A distribution as the other side will see it.

    `distribution` is what the draft is sampled from. `bits` is what it takes on the wire (the
    papers' formulas), `token_bits` what a token drafted from it takes beside it. `code` is what
    travels: bytes, a lattice point, or None where nothing does. `dropped` is the mass of the
    original outside of what travels: α_n(X_n) of SQS Eq. (4).
    """

    distribution: Distribution
    bits: int
    token_bits: int
    code: LatticePoint | bytes | None
    dropped: float


@dataclass(frozen=True, slots=True)
class Codec:
    """A code of next-token distributions over `vocabulary` tokens, and of tokens drafted from them.

    `encode_block` and `decode_block` make whole payloads of it.
    """

    name: str
    vocabulary: int

    tokens_by_id: ClassVar[bool] = True
    """Whether a token travels as its id, in ⌈log2 V⌉ bits, instead of its rank in the support.

    Ranks are for tokens that were sampled from what travels."""
    sends_distributions: ClassVar[bool] = True
    """Whether a distribution travels at all."""
    complete: ClassVar[bool] = True
    """Whether what travels says all of the distribution that a draft is sampled from."""
    has_resolution: ClassVar[bool] = False
    """Whether a Step's resolution changes what travels: lattice points."""
    light: ClassVar[bool] = False
    """Whether decoding a short payload, and mixing it, never touches the whole vocabulary."""
    longest: ClassVar[int] = 2**31
    """How many bytes may be read at once: of a block, or of an upload's payloads together."""
    header: ClassVar[bytes] = b""
    """The first byte of a payload, for codes whose own bits do not say what they are."""

    def quantize(self, p: NDArray[np.floating[Any]], step: Step = PLAIN) -> Quantized:
        """`p`, floating [V] of any positive sum, as the other side will see it.

        Raises CodecError for another shape, negative or non-finite entries, a zero sum, or a
        resolution out of range.
        """
        raise NotImplementedError

    def write(self, quantized: Quantized, writer: BitWriter) -> None:
        """Append what travels. Raises CodecError for what another codec quantized."""
        raise NotImplementedError

    def read(self, reader: BitReader, step: Step = PLAIN) -> Callable[[], Distribution]:
        """Take the bits of the next distribution; the call makes it of them.

        It has the sum 1 and is the same to the last bit on every machine. What costs more than to
        look at the bits waits for the call, so that a payload with bits too many or too few is
        rejected before. Raises CodecError for bits that are malformed or of another codec.
        """
        raise NotImplementedError


def token_bits(codec: Codec, support: Distribution | None) -> int:
    """The bits of a token: ⌈log2 V⌉ by its id, ⌈log2 n⌉ by its rank among the n of `support`."""
    choices = codec.vocabulary if support is None or codec.tokens_by_id else len(support)
    return (choices - 1).bit_length()


def other_codec(name: str) -> CodecError:
    """The error of a payload that the codec `name` did not write."""
    return CodecError(f"payload is not from the codec {name}; use one codec on both sides")
