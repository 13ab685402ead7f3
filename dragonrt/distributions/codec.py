"""Make codecs from their names; the codec `ids` sends tokens without distributions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.distributions.byte_codecs import FP16, FP32, Dense, Kind, Sparse
from dragonrt.distributions.distribution import Distribution, checked_sum
from dragonrt.distributions.lattice import MAX_RESOLUTION, LatticeCodec, LatticeKind
from dragonrt.distributions.protocol import (
    PLAIN,
    BitReader,
    BitWriter,
    Codec,
    Quantized,
    Step,
    token_bits,
)
from dragonrt.errors import CodecError

VALID_FORMS = (
    "ids, dense:fp16, dense:fp32, topp:P (0 < P <= 1), topk:K:renorm, topk:K:residual (K >= 1), "
    "qs:L, ksqs:K:L (K >= 1), csqs:BETA:L (0 <= BETA <= 1) with L from 1 to "
    f"{MAX_RESOLUTION}"
)

QS, K_SQS, C_SQS = LatticeKind


def codec(name: str, vocabulary: int, *, tokens_by_id: bool = False) -> Codec:
    """Return the codec `name`, such as "topk:8:renorm", for distributions of `vocabulary` tokens.

    With `tokens_by_id` a lattice codec sends a draft as its id, not its rank among the tokens with
    a probability sent; the baseline S-Q (QSV) drafts others, too. Raises CodecError for bad names.
    """
    if not 0 < vocabulary < 2**31:
        raise CodecError(f"a vocabulary of {vocabulary} tokens cannot be coded")
    match name.split(":"):
        case ["ids"]:
            return Ids(name, vocabulary)
        case ["dense", "fp16"]:
            return Dense(name, vocabulary, FP16)
        case ["dense", "fp32"]:
            return Dense(name, vocabulary, FP32)
        case ["topp", mass] if 0 < (p := _number(mass)) <= 1:
            return Sparse(name, vocabulary, Kind.TOP_P, vocabulary, p)
        case ["topk", count, "renorm"] if (k := _whole_number(count)) >= 1:
            return Sparse(name, vocabulary, Kind.RENORMALISED, k)
        case ["topk", count, "residual"] if (k := _whole_number(count)) >= 1:
            return Sparse(name, vocabulary, Kind.RESIDUAL, k)
        case ["qs", finest] if resolution := _resolution(finest):
            k = vocabulary
            return LatticeCodec(name, vocabulary, QS, resolution, k, 0.0, tokens_by_id)
        case ["ksqs", count, finest] if (k := _whole_number(count)) >= 1 and (
            resolution := _resolution(finest)
        ):
            k = min(k, vocabulary)
            return LatticeCodec(name, vocabulary, K_SQS, resolution, k, 0.0, tokens_by_id)
        case ["csqs", threshold, finest] if 0 <= (beta := _number(threshold)) <= 1 and (
            resolution := _resolution(finest)
        ):
            return LatticeCodec(name, vocabulary, C_SQS, resolution, None, beta, tokens_by_id)
    raise CodecError(f"unknown codec {name!r}; valid are {VALID_FORMS}")


def _number(text: str) -> float:
    """Parse plain digits with a decimal point, otherwise nan (which no name accepts)."""
    return float(text) if text.replace(".", "", 1).isdecimal() and text.isascii() else float("nan")


def _whole_number(text: str) -> int:
    """Parse a whole number in plain digits, otherwise 0 (which no name accepts)."""
    return int(n) if (n := _number(text)).is_integer() else 0


def _resolution(text: str) -> int:
    """Parse a resolution, otherwise 0."""
    resolution = _whole_number(text)
    return resolution if resolution <= MAX_RESOLUTION else 0


@dataclass(frozen=True, slots=True)
class Ids(Codec):
    """The codec that sends token ids alone, enough if both sides sample with the same noise."""

    sends_distributions: ClassVar = False
    header: ClassVar = bytes((5 << 3,))  # beside the lattice codecs'

    @override
    def quantize(self, p: NDArray[np.floating[Any]], step: Step = PLAIN) -> Quantized:
        q = Distribution.from_dense(np.divide(p, checked_sum(p, self.vocabulary), dtype=np.float64))
        return Quantized(q, 0, token_bits(self, None), None, 0.0)

    @override
    def write(self, quantized: Quantized, writer: BitWriter) -> None:
        pass

    @override
    def read(self, reader: BitReader, step: Step = PLAIN) -> Callable[[], Distribution]:
        raise CodecError(f"codec {self.name} sends no distributions; choose one that does")
