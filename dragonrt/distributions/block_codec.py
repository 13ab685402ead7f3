"""The bit string of a block of drafted tokens with their distributions (SPEC 2).

The first byte says what the block holds. Then follow, token by token,
- for the lattice codecs: the lattice point, and the token as its rank in the point's support;
- for the byte codecs (`dense:fp16` is the uncompressed baseline): the payload's length in bytes, as
  5 bits that say how many bits it has and then those, the payload, and the token's id;
- for `ids`, the zero-distribution uplink: the token's id.
An id takes ⌈log2 V⌉ bits. Zero bits fill the last byte.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions.arguments import checked_sum, checked_vocabulary
from dragonrt.distributions.bits import BitReader, BitWriter
from dragonrt.distributions.codec import VALID_FORMS, Codec, codec
from dragonrt.distributions.distribution import Distribution
from dragonrt.distributions.errors import CodecError
from dragonrt.distributions.lattice import LatticePoint, dropped_mass
from dragonrt.distributions.lattice_codec import (
    LATTICE_FAMILIES,
    LatticeCodec,
    lattice_codec,
    read_token,
    token_bits,
    write_token,
)

_HEADER_BITS = 8
_PAYLOADS, _IDS = 4, 5  # behind the values of LatticeKind
_BY_ID = 0x80  # the tokens of lattice points travel as ids
_WIDTH_BITS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """A distribution as the other side will see it.

    `distribution` is what the draft is sampled from, `bits` what it takes in a block together
    with its token, `code` how it travels (None for `ids`), and `dropped` the mass of the original
    outside of what travels: α_n(X_n) of SQS Eq. (4).
    """

    distribution: Distribution
    bits: int
    code: LatticePoint | bytes | None
    dropped: float


class BlockCodec(Protocol):
    """A code of blocks of drafted tokens over one vocabulary."""

    @property
    def name(self) -> str:
        """The name that `block_codec` makes this codec from."""

    @property
    def vocabulary(self) -> int:
        """The number of tokens, V."""

    def quantize(
        self,
        q: NDArray[np.floating[Any]],
        resolution: int | None = None,
        threshold: float | None = None,
    ) -> Quantized:
        """`q`, floating [V] of any positive sum, as the other side will see it.

        `resolution` and `threshold` take the place of the ℓ and β in the codec's name; codecs that
        have none ignore them. Raises CodecError for what is no distribution.
        """

    def encode(self, tokens: Sequence[int], quantized: Sequence[Quantized]) -> bytes:
        """The block of `tokens`, each drafted from the distribution at its place."""

    def decode(
        self, data: bytes, count: int, resolutions: Sequence[int] | None = None
    ) -> tuple[list[int], list[Distribution] | None]:
        """The `count` tokens of a block, and their distributions (None from `ids`).

        `resolutions` are those that the tokens were quantized with, by default the codec's own.
        Raises CodecError for bits that are not such a block of this codec.
        """


def block_codec(name: str, vocabulary: int, *, tokens_by_id: bool = False) -> BlockCodec:
    """The block codec called `name`: `ids`, or any codec's name. CodecError lists the valid names.

    `tokens_by_id` is for drafts that are not sampled from what travels, as in the baseline S-Q
    (QSV): their tokens may have no rank in a lattice point's support, so they travel as ids.
    """
    checked_vocabulary(vocabulary)
    if name == "ids":
        return _IdBlocks(name, vocabulary)
    if name.split(":")[0] in LATTICE_FAMILIES:
        return _LatticeBlocks(name, vocabulary, lattice_codec(name, vocabulary), tokens_by_id)
    try:
        return _PayloadBlocks(name, vocabulary, codec(name, vocabulary))
    except CodecError:
        raise CodecError(f"unknown codec {name!r}; valid are ids, {VALID_FORMS}") from None


@dataclass(frozen=True, slots=True)
class _LatticeBlocks:
    """Lattice points and tokens bit by bit."""

    name: str
    vocabulary: int
    lattice: LatticeCodec
    tokens_by_id: bool

    def quantize(
        self,
        q: NDArray[np.floating[Any]],
        resolution: int | None = None,
        threshold: float | None = None,
    ) -> Quantized:
        point = self.lattice.quantize(q, resolution, threshold)
        token = _id_bits(self.vocabulary) if self.tokens_by_id else token_bits(point)
        bits = self.lattice.bits(point) + token
        return Quantized(point.distribution(), bits, point, dropped_mass(q, point.ids))

    def encode(self, tokens: Sequence[int], quantized: Sequence[Quantized]) -> bytes:
        writer = BitWriter()
        writer.write(self._header, _HEADER_BITS)
        for token, one in zip(tokens, quantized, strict=True):
            if not isinstance(one.code, LatticePoint):
                raise CodecError(f"{self.name} cannot send what another codec quantized")
            self.lattice.write(one.code, writer)
            if self.tokens_by_id:
                writer.write(token, _id_bits(self.vocabulary))
            else:
                write_token(one.code, token, writer)
        return writer.to_bytes()

    def decode(
        self, data: bytes, count: int, resolutions: Sequence[int] | None = None
    ) -> tuple[list[int], list[Distribution] | None]:
        reader = _opened(data, self._header, self.name)
        if resolutions is None:
            resolutions = (self.lattice.resolution,) * count
        if len(resolutions) != count:
            raise CodecError(f"block has {count} tokens but {len(resolutions)} resolutions")
        tokens, distributions = [], []
        for resolution in resolutions:
            point = self.lattice.read(reader, resolution)
            by_id = self.tokens_by_id
            tokens.append(_read_id(reader, self.vocabulary) if by_id else read_token(point, reader))
            distributions.append(point.distribution())
        reader.finish()
        return tokens, distributions

    @property
    def _header(self) -> int:
        return self.lattice.kind | (_BY_ID if self.tokens_by_id else 0)


@dataclass(frozen=True, slots=True)
class _PayloadBlocks:
    """Payloads of a byte codec, and token ids."""

    name: str
    vocabulary: int
    codec: Codec

    def quantize(
        self,
        q: NDArray[np.floating[Any]],
        resolution: int | None = None,
        threshold: float | None = None,
    ) -> Quantized:
        payload = self.codec.encode(q)
        distribution = self.codec.decode(payload)
        bits = _WIDTH_BITS + len(payload).bit_length() + 8 * len(payload)
        bits += _id_bits(self.vocabulary)
        return Quantized(distribution, bits, payload, dropped_mass(q, distribution.ids))

    def encode(self, tokens: Sequence[int], quantized: Sequence[Quantized]) -> bytes:
        writer = BitWriter()
        writer.write(_PAYLOADS, _HEADER_BITS)
        for token, one in zip(tokens, quantized, strict=True):
            if not isinstance(one.code, bytes):
                raise CodecError(f"{self.name} cannot send what another codec quantized")
            width = len(one.code).bit_length()
            writer.write(width, _WIDTH_BITS)
            writer.write(len(one.code), width)
            writer.write(int.from_bytes(one.code, "big"), 8 * len(one.code))
            writer.write(token, _id_bits(self.vocabulary))
        return writer.to_bytes()

    def decode(
        self, data: bytes, count: int, resolutions: Sequence[int] | None = None
    ) -> tuple[list[int], list[Distribution] | None]:
        reader = _opened(data, _PAYLOADS, self.name)
        tokens, distributions = [], []
        for _ in range(count):
            width = reader.read(_WIDTH_BITS)
            length = reader.read(width)
            if length.bit_length() != width:
                raise CodecError("payload has no valid length; discard it")
            payload = reader.read(8 * length).to_bytes(length, "big")
            distributions.append(self.codec.decode(payload))
            tokens.append(_read_id(reader, self.vocabulary))
        reader.finish()
        return tokens, distributions


@dataclass(frozen=True, slots=True)
class _IdBlocks:
    """Token ids alone: with coupled noise the other side needs no distribution (SPEC 2)."""

    name: str
    vocabulary: int

    def quantize(
        self,
        q: NDArray[np.floating[Any]],
        resolution: int | None = None,
        threshold: float | None = None,
    ) -> Quantized:
        distribution = Distribution.from_dense(q / checked_sum(q, self.vocabulary))
        return Quantized(distribution, _id_bits(self.vocabulary), None, 0.0)

    def encode(self, tokens: Sequence[int], quantized: Sequence[Quantized]) -> bytes:
        writer = BitWriter()
        writer.write(_IDS, _HEADER_BITS)
        for token in tokens:
            writer.write(token, _id_bits(self.vocabulary))
        return writer.to_bytes()

    def decode(
        self, data: bytes, count: int, resolutions: Sequence[int] | None = None
    ) -> tuple[list[int], list[Distribution] | None]:
        reader = _opened(data, _IDS, self.name)
        tokens = [_read_id(reader, self.vocabulary) for _ in range(count)]
        reader.finish()
        return tokens, None


def _id_bits(vocabulary: int) -> int:
    return (vocabulary - 1).bit_length()


def _read_id(reader: BitReader, vocabulary: int) -> int:
    token = reader.read(_id_bits(vocabulary))
    if token >= vocabulary:
        raise CodecError(f"payload has a token {token} beyond {vocabulary}; discard it")
    return token


def _opened(data: bytes, header: int, name: str) -> BitReader:
    """A reader behind the header. Raises CodecError where the header is another codec's."""
    reader = BitReader(data)
    if reader.read(_HEADER_BITS) != header:
        raise CodecError(f"block is not from the codec {name}; use one codec on both sides")
    return reader
