"""Distributions as bits: the base class of codecs, and the payloads of drafts that they write.

A draft is sampled from the distribution that the other side will decode (QSV Prop. 1), so that the
text is exact with respect to what was sent. `encode_block` writes the payload of a message Block,
drafted tokens with their distributions. `Codec.encode` writes one distribution and no token, for a
message Draft or Upload. A payload is the codec's header (a byte or none), the distributions, the
tokens, and zero bits to a whole byte.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions.distribution import Distribution
from dragonrt.errors import CodecError


class BitWriter:
    """Writes numbers of given widths in bits, one after the other, after the bytes `header`."""

    def __init__(self, header: bytes = b"") -> None:
        self._whole = bytearray(header)
        self._tail = 0  # the bits that do not fill a byte yet
        self._tail_bits = 0

    @property
    def bits(self) -> int:
        return 8 * len(self._whole) + self._tail_bits

    def write(self, value: int, bits: int) -> None:
        """Append `value` in `bits` bits. Raises ValueError for a value that does not fit."""
        if value < 0 or value >> bits:
            raise ValueError(f"{value} does not fit into {bits} bits")
        tail = self._tail << bits | value
        count, rest = divmod(self._tail_bits + bits, 8)
        self._whole += (tail >> rest).to_bytes(count, "big")
        self._tail, self._tail_bits = tail & ((1 << rest) - 1), rest

    def write_bytes(self, data: bytes) -> None:
        """Append whole bytes. Raises ValueError unless the bits so far fill their last byte."""
        if self._tail_bits:
            raise ValueError("whole bytes must begin where a byte begins")
        self._whole += data

    def to_bytes(self) -> bytes:
        """Return the header and all that was written, with zero bits up to a whole byte."""
        if not self._tail_bits:
            return bytes(self._whole)
        return bytes(self._whole) + bytes((self._tail << (8 - self._tail_bits),))


class BitReader:
    """Reads, from received bytes after their header, the numbers that a BitWriter wrote."""

    def __init__(self, data: bytes, header: int = 0) -> None:
        """`header` is the number of bytes that are not read."""
        self._data = data
        self._position = 8 * header

    @property
    def left(self) -> int:
        return 8 * len(self._data) - self._position

    def read(self, bits: int) -> int:
        """Return the next number, of `bits` bits. Raises CodecError if fewer bits are left."""
        if bits > self.left:
            raise CodecError(f"payload ends {bits - self.left} bits too early; discard it")
        end = self._position + bits
        covering = int.from_bytes(self._data[self._position // 8 : -(-end // 8)], "big")
        self._position = end
        return covering >> (-end % 8) & ((1 << bits) - 1)

    def rest(self) -> memoryview:
        """Return all unread bytes; the caller parses some of them, and then calls `skip`.

        Raises ValueError in the middle of a byte.
        """
        if self._position % 8:
            raise ValueError("whole bytes must begin where a byte begins")
        return memoryview(self._data)[self._position // 8 :]

    def skip(self, count: int) -> None:
        """Advance by `count` bytes after `rest`; at least as many bytes must be left."""
        self._position += 8 * count

    def check_left(self, bits: int) -> None:
        """Raise CodecError if more is unread than `bits`, the most still to read, and padding."""
        if self.left > bits + 7:
            raise CodecError("payload has bits after its last field; discard it")

    def finish(self) -> None:
        """Raise CodecError unless only the zero padding of the last byte is left."""
        self.check_left(0)
        if self.read(self.left):
            raise CodecError("payload has bits after its last field; discard it")


@dataclass(frozen=True, slots=True)
class Step:
    """A token's place in the answer, and the codec's parameters there, which both sides know.

    `index` is the place, from 0. `resolution` and `threshold`, if not None, replace the ℓ and the β
    in a codec's name; codecs without them ignore them.
    """

    index: int = 0
    resolution: int | None = None
    threshold: float | None = None


PLAIN = Step()
"""A step without parameters: codecs use those in their names."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """A distribution before it is sent, made by `Codec.quantize`: drafts are sampled from it.

    The other side will decode `distribution`. It takes `bits` bits of a payload (formulas of QSV,
    SQS), a token drafted from it `token_bits`. `code` is what `Codec.write` needs to write it.
    `dropped` is the share of the original mass outside the sent tokens: α_n(X_n) of SQS Eq. (4).
    """

    distribution: Distribution
    bits: int
    token_bits: int
    code: object
    dropped: float


@dataclass(frozen=True, slots=True)
class Codec:
    """Base of codecs, which write distributions over `vocabulary` tokens, and tokens, as bits.

    `quantize` a distribution, then `write` or `encode` it; `encode_block` makes a block's payload.
    """

    name: str
    vocabulary: int

    tokens_by_id: ClassVar[bool] = True
    """Whether a token travels as its id, in ⌈log2 V⌉ bits, instead of its rank in the support.

    Ranks are for tokens that were sampled from the transmitted distribution."""
    sends_distributions: ClassVar[bool] = True
    """Whether distributions are sent."""
    has_resolution: ClassVar[bool] = False
    """Whether a Step's resolution changes the payload: lattice points."""
    light: ClassVar[bool] = False
    """Whether decoding a short payload, and mixing it, never touches the whole vocabulary."""
    longest: ClassVar[int] = 2**31
    """The most bytes read at once: of a block, or of all payloads of an upload."""
    header: ClassVar[bytes] = b""
    """The first byte of a payload, for codes whose bits do not identify the codec."""

    def quantize(self, p: NDArray[np.floating[Any]], step: Step = PLAIN) -> Quantized:
        """Return `p`, floating [V] of any positive sum, as the other side will decode it.

        Raises CodecError for another shape, negative or non-finite entries, a zero sum, or a
        resolution out of range.
        """
        raise NotImplementedError

    def write(self, quantized: Quantized, writer: BitWriter) -> None:
        """Append the bits of `quantized`. Raises CodecError if another codec quantized it."""
        raise NotImplementedError

    def read(self, reader: BitReader, step: Step = PLAIN) -> Callable[[], Distribution]:
        """Consume the bits of the next distribution; return a function that builds it.

        The distribution has the sum 1 and the same bits on every machine. Expensive work waits for
        the call, so that a payload of the wrong length is rejected first. Raises CodecError for
        malformed bits or those of another codec.
        """
        raise NotImplementedError

    def encode(self, quantized: Quantized) -> bytes:
        """Return a payload of one distribution and no tokens. Raises CodecError as `write` does."""
        writer = BitWriter(self.header)
        self.write(quantized, writer)
        return writer.to_bytes()

    def decode(self, data: bytes, step: Step = PLAIN) -> Distribution:
        """Return the distribution in a payload of `encode`, which has one and no tokens.

        Raises CodecError for other bytes, or if the codec sends no distributions.
        """
        if not data.startswith(self.header):
            raise other_codec(self.name)
        reader = BitReader(data, len(self.header))
        make = self.read(reader, step)
        reader.finish()
        return make()


def token_bits(codec: Codec, support: Distribution | None) -> int:
    """Return how many bits a drafted token takes in a payload: ⌈log2 of its choices⌉.

    They are the tokens of `support` or, if it is None or the codec writes ids, the vocabulary.
    """
    choices = codec.vocabulary if support is None or codec.tokens_by_id else len(support)
    return (choices - 1).bit_length()


def other_codec(name: str) -> CodecError:
    """Return the error to raise for a payload that another codec than `name` wrote."""
    return CodecError(f"payload is not from the codec {name}; use one codec on both sides")


def block_steps(first: int, count: int, resolutions: Sequence[int] = ()) -> list[Step]:
    """Return the Steps of a block's `count` tokens, the first of which has the index `first`.

    `resolutions` are denominators ℓ of a lattice codec: none, one for all tokens, or one for each.
    Raises CodecError for another number of them.
    """
    if len(resolutions) not in (0, 1, count):
        raise CodecError(f"block has {count} tokens but {len(resolutions)} resolutions")
    each = resolutions if len(resolutions) == count else tuple(resolutions or (None,)) * count
    return [Step(first + index, resolution) for index, resolution in enumerate(each)]


def encode_block(codec: Codec, tokens: Sequence[int], quantized: Sequence[Quantized]) -> bytes:
    """Return the payload of drafted `tokens` and the distributions that they were drafted from.

    A codec that sends no distributions ignores `quantized`. Raises CodecError for a token without
    mass, and for distributions that another codec quantized.
    """
    writer = BitWriter(codec.header)
    supports: Sequence[Distribution | None] = [None] * len(tokens)
    if codec.sends_distributions:
        supports = [each.distribution for each in quantized]
        for each in quantized:
            codec.write(each, writer)
    for token, support in zip(tokens, supports, strict=True):
        _write_token(codec, token, support, writer)
    return writer.to_bytes()


def decode_block(
    codec: Codec, data: bytes, steps: Sequence[Step]
) -> tuple[list[int], list[Distribution] | None]:
    """Return (tokens, their distributions or None if none are sent) from a payload, `data`.

    `steps`, one per token, are those used to quantize. Raises CodecError for bytes that are not a
    block of this codec.
    """
    if not data.startswith(codec.header):
        raise other_codec(codec.name)
    reader = BitReader(data, len(codec.header))
    distributions = None
    supports: Sequence[Distribution | None] = [None] * len(steps)
    if codec.sends_distributions:
        taken = [codec.read(reader, step) for step in steps]
        reader.check_left(len(steps) * token_bits(codec, None))
        supports = distributions = [make() for make in taken]
    tokens = [_read_token(codec, support, reader) for support in supports]
    reader.finish()
    return tokens, distributions


def _write_token(codec: Codec, token: int, support: Distribution | None, writer: BitWriter) -> None:
    number = token
    if support is not None and not codec.tokens_by_id:
        number = int(support.ids.searchsorted(token))
        if number == len(support) or support.ids[number] != token:
            raise CodecError(f"token {token} has probability 0 and cannot have been drafted")
    writer.write(number, token_bits(codec, support))


def _read_token(codec: Codec, support: Distribution | None, reader: BitReader) -> int:
    number = reader.read(token_bits(codec, support))
    if support is None or codec.tokens_by_id:
        if number >= codec.vocabulary:
            raise CodecError(f"payload has a token {number} beyond {codec.vocabulary}; discard it")
        return number
    if number >= len(support):
        raise CodecError(f"payload drafts token {number} of {len(support)}; discard it")
    return int(support.ids[number])
