"""The race codec: the entries that may win a step's race, and a bound on all others (SPEC 1.8).

Both sides race with the noise F of a step: the token of the largest score S(x) = p(x) / F(x) wins.
Listed are the tokens with S(x) >= tau max S, so any other score is below tau max S. All
probabilities are rounded to the codec's number format before use, so that both sides compute the
same scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.distributions.bits import BitReader
from dragonrt.distributions.byte_codecs import ByteCodec
from dragonrt.distributions.distribution import Distribution, checked_sum
from dragonrt.distributions.payload import (
    FP32,
    KIND_BITS,
    Kind,
    all_values,
    kind_of,
    read_varint,
    varint,
)
from dragonrt.distributions.protocol import PLAIN, Quantized, Step, StepNoise, other_codec
from dragonrt.distributions.support import decode_support, encode_support
from dragonrt.errors import CodecError

LARGEST_TAU = 0.35
"""With both sides' tau below one half, the winner of their mixture is on one of the two lists."""

_COUNTED = 31  # from this number of entries on, a varint after the first byte counts them
_STEPS = np.arange(256)
_TAUS = LARGEST_TAU * 2.0 ** -np.where(_STEPS < 128, _STEPS / 16, 8 + (_STEPS - 128) * 1.125)
"""tau by its byte in a payload: fine steps down to 0.001, then to below any fp32."""
_TAUS[-1] = 0.0
_ROUNDING = 2.0**-10  # the most that rounding adds to the sum of all probabilities
_PROBABILITIES = np.dtype("<f8")

_FEW = 1 << 14  # scores: up to this number, computing all is faster than a search
_HEAVY = 64  # a token is heavy above this multiple of the average probability
_NEAR = 256.0  # average number of tokens in the first search
_WIDER = 16.0  # factor by which each further search is wider


@dataclass(frozen=True, slots=True, eq=False)
class OwnRace(Distribution):
    """A side's whole distribution in the number format; the other side has the `listed` tokens.

    `listed` is int64 [K], strictly increasing.
    """

    packed_whole: ClassVar = True
    listed: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RaceEntries(Distribution):
    """The received part of the other side's distribution: exact entries, and a bound on the rest.

    `first` are the tokens of the first list; their best score times `tau` is the bound. The even
    spread of the remaining mass is an assumption.
    """

    tau: float
    first: NDArray[np.int64]

    def ceiling(self, noise: StepNoise | None) -> float:
        """Return the bound that the score of every unlisted token is below."""
        return self.tau * float(_scores(self, self.first, noise).max())

    def joined(self, ids: NDArray[np.int64], probabilities: NDArray[np.float64]) -> RaceEntries:
        """Return the entries with the probabilities of more tokens, strictly increasing."""
        new = ~np.isin(ids, self.ids)
        ids, probabilities = ids[new], probabilities[new]
        at = self.ids.searchsorted(ids)
        more = np.insert(self.ids, at, ids), np.insert(self.probabilities, at, probabilities)
        rest = max(0.0, self.rest - float(probabilities.sum()))
        return RaceEntries(*more, rest, self.vocabulary, self.tau, self.first)


def _scores(
    p: Distribution, ids: NDArray[np.int64], noise: StepNoise | None
) -> NDArray[np.float64]:
    """Return the scores S of tokens that `p` lists."""
    chosen = p.probabilities[p.ids.searchsorted(ids)]
    return chosen if noise is None else chosen / noise(p.vocabulary, ids)


@dataclass(frozen=True, slots=True)
class Rounded:
    """A whole distribution in a number format: the bytes before the values, and all values."""

    distribution: Distribution
    head: bytes
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Half:
    """Two bytes: 6 bits of exponent and 10 of mantissa, from 1 down to 2^-62; below is zero.

    The sum is not exactly 1, and a race does not need it. A list takes `head_bytes` once and
    `value_bytes` per value.
    """

    value_bytes: ClassVar = 2
    head_bytes: ClassVar = 0

    def rounded(self, p: NDArray[np.floating[Any]], total: float) -> Rounded:
        """Round all of `p`, floating [V], whose sum is `total`."""
        bits = np.divide(p, total, dtype=p.dtype).astype(FP32.dtype).view(FP32.bits)
        codes = (bits + (0x0FFF + (bits >> 13 & 1)) >> 13).astype(np.int32) - _HALF_ZERO
        codes = np.where(codes < _HALF_LEAST, 0, codes).astype("<u2")
        ids = np.flatnonzero(codes)
        p_rounded = self._decoded(codes[ids])
        return Rounded(Distribution(ids, p_rounded, 0.0, p.size), b"", codes)

    def read(self, head: memoryview, values: memoryview) -> NDArray[np.float64]:
        """Return the probabilities. Raises CodecError for bytes that are no probabilities."""
        codes = np.frombuffer(values, "<u2")
        if not (int(codes.min()) >= _HALF_LEAST and int(codes.max()) <= _HALF_ONE):
            raise CodecError("payload has a value that is no probability; discard it")
        return self._decoded(codes)

    def _decoded(self, codes: NDArray[np.uint16]) -> NDArray[np.float64]:
        bits = codes.astype(FP32.bits) + _HALF_ZERO << 13
        return bits.view(FP32.dtype).astype(np.float64)


_HALF_ZERO = 64 << 10
_HALF_LEAST = 1 << 10
_HALF_ONE = (127 << 10) - _HALF_ZERO


@dataclass(frozen=True, slots=True)
class Single:
    """The format of dense:fp32: fp32 relative to the largest, and the sum of all as fp64."""

    value_bytes: ClassVar = 4
    head_bytes: ClassVar = 8

    def rounded(self, p: NDArray[np.floating[Any]], total: float) -> Rounded:
        """Return p relative to its largest entry, in fp32, with the sum of those as the head."""
        values = np.asarray(p / p.max(), FP32.dtype)
        q = all_values(FP32, values)
        return Rounded(q, values[q.ids].astype("<f8").sum().tobytes(), values)

    def read(self, head: memoryview, values: memoryview) -> NDArray[np.float64]:
        """Return the probabilities of the values. Raises CodecError if a value cannot be one."""
        total = float(np.frombuffer(head, "<f8")[0])
        relative = np.frombuffer(bytes(values), FP32.dtype).astype(np.float64)
        if not (relative.min() > 0 and relative.max() <= 1 and 1 <= total < 2**31):
            raise CodecError("payload has a value that is no probability; discard it")
        return relative / total


@dataclass(frozen=True, slots=True)
class RaceCodec(ByteCodec):
    """The entries with S(x) >= `tau` max S, or the Step's threshold; without noise S is p.

    `adapts`: the sender moves tau.
    """

    tau: float
    adapts: bool
    form: Half | Single
    light: ClassVar = True
    complete: ClassVar = False

    @override
    def quantize(self, p: NDArray[np.floating[Any]], step: Step = PLAIN) -> Quantized:
        total = checked_sum(p, self.vocabulary)
        rounded = self.form.rounded(p, total)
        q = rounded.distribution
        tau = self.tau if step.threshold is None else step.threshold
        bound = int((tau < _TAUS).sum())  # rounded down: the list is as long
        listed = leading(q, step.noise, float(_TAUS[bound]))
        few = listed.size < _COUNTED
        code = b"".join(
            (
                bytes((Kind.RACE | min(listed.size, _COUNTED) << KIND_BITS,)),
                b"" if few else varint(listed.size),
                bytes((bound,)),
                rounded.head,
                rounded.values[listed].tobytes(),
                encode_support(listed, self._low_bits(listed.size)),
            )
        )
        own = OwnRace(q.ids, q.probabilities, 0.0, q.vocabulary, listed)
        dropped = max(0.0, 1 - float(p[listed].sum(dtype=np.float64)) / total)
        return Quantized(own, 8 * len(code), (self.vocabulary - 1).bit_length(), code, dropped)

    @override
    def read(self, reader: BitReader, step: Step = PLAIN) -> Callable[[], RaceEntries]:
        entries, length = self._decode(reader.rest())
        reader.skip(length)
        return lambda: entries

    @override
    def _decode(self, data: memoryview) -> tuple[RaceEntries, int]:
        if kind_of(data) != Kind.RACE:
            raise other_codec(self.name)
        count, start = data[0] >> KIND_BITS, 1
        if count == _COUNTED:
            count, start = read_varint(data)
        if not 0 < count <= self.vocabulary:
            raise CodecError(f"payload lists {count} tokens; discard it")
        head_start = start + 1
        values_start = head_start + self.form.head_bytes
        ids_start = values_start + count * self.form.value_bytes
        if len(data) <= ids_start:
            raise CodecError("payload ends before its last value; discard it")
        tau = float(_TAUS[data[start]])
        p = self.form.read(data[head_start:values_start], data[values_start:ids_start])
        low_bits = self._low_bits(count)
        ids, length = decode_support(data[ids_start:], count, low_bits, self.vocabulary)
        left = 1 - float(p.sum())
        if left < -_ROUNDING:
            raise CodecError("payload has more than all of the probability; discard it")
        left = max(0.0, left) if count < self.vocabulary else 0.0
        return RaceEntries(ids, p, left, self.vocabulary, tau, ids), ids_start + length

    def _low_bits(self, count: int) -> int:
        """Return the length of the ids' lower part that makes `count` ids shortest."""
        return max(0, (self.vocabulary // count).bit_length() - 1)


def encode_probabilities(own: OwnRace, ids: NDArray[np.int64]) -> bytes:
    """Return the bytes of the exact probabilities of `ids`, which `own` did not list."""
    return np.array([own.probability(token) for token in ids.tolist()], _PROBABILITIES).tobytes()


def decode_probabilities(entries: RaceEntries, ids: NDArray[np.int64], data: bytes) -> RaceEntries:
    """Return `entries` with the probabilities that `encode_probabilities` wrote of unlisted tokens.

    Raises CodecError for any other bytes.
    """
    if len(data) != ids.size * _PROBABILITIES.itemsize:
        raise CodecError(f"{len(data)} bytes say the probabilities of {ids.size} tokens; discard")
    p = np.frombuffer(data, _PROBABILITIES).astype(np.float64)
    if not ((p >= 0).all() and p.sum() <= 1 + _ROUNDING):
        raise CodecError("an answer has numbers that are no probabilities; discard it")
    return entries.joined(ids, p)


def leading(p: Distribution, noise: StepNoise | None, tau: float) -> NDArray[np.int64]:
    """Return the listed tokens of `p` with S(x) >= tau max S: int64, increasing.

    In a large vocabulary it searches only tokens that are heavy or have little noise; any other has
    a score below share / bound.
    """
    vocabulary = p.vocabulary
    if noise is None or vocabulary <= _FEW:
        return p.ids[_above(_scores(p, p.ids, noise), tau)]
    dense = p.to_dense()
    share = _HEAVY * 2.0 ** -vocabulary.bit_length()
    heavy = np.flatnonzero(dense >= share)
    bound = _NEAR / vocabulary
    while (near := noise.below(vocabulary, bound)).size < vocabulary:
        ids = np.union1d(heavy, near)
        scores = dense[ids] / noise(vocabulary, ids)
        if tau * scores.max(initial=0.0) * bound >= share:
            ids = ids[_above(scores, tau)]
            return ids[dense[ids] > 0]
        bound *= _WIDER
    return p.ids[_above(_scores(p, p.ids, noise), tau)]


def _above(scores: NDArray[np.float64], tau: float) -> NDArray[np.bool_]:
    chosen: NDArray[np.bool_] = scores >= tau * scores.max()
    return chosen
