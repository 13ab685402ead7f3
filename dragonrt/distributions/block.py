"""Payloads: blocks of drafted tokens with their distributions, and single distributions.

A draft's payload is a single distribution; its token is a field of the message. So is each of an
upload's payloads.

The bits are the codec's header (a byte, or none if distributions start with their own), the
distributions, then the tokens. A token is its rank in its distribution's support, or its id. Zero
bits fill the last byte.
"""

from collections.abc import Sequence

from dragonrt.distributions.bits import BitReader, BitWriter
from dragonrt.distributions.distribution import Distribution
from dragonrt.distributions.protocol import PLAIN, Codec, Quantized, Step, other_codec, token_bits
from dragonrt.errors import CodecError


def block_steps(first: int, count: int, resolutions: Sequence[int] = ()) -> list[Step]:
    """Return the steps of a block's `count` tokens from `first` on.

    A message names no resolutions, one for all, or one for each. Raises CodecError for another
    number.
    """
    if len(resolutions) not in (0, 1, count):
        raise CodecError(f"block has {count} tokens but {len(resolutions)} resolutions")
    each = resolutions if len(resolutions) == count else tuple(resolutions or (None,)) * count
    return [Step(first + index, resolution) for index, resolution in enumerate(each)]


def encode_block(codec: Codec, tokens: Sequence[int], quantized: Sequence[Quantized]) -> bytes:
    """Return the payload of drafted tokens and the distributions that each was drafted from.

    A codec that sends no distributions ignores them. Raises CodecError for a token without mass,
    and for distributions that another codec quantized.
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
    """Return the tokens and the distributions (None if none are sent) of a payload.

    `steps`, one per token, are those of the quantization. Raises CodecError for bytes that are not
    a block of this codec.
    """
    reader = _opened(codec, data)
    distributions = None
    supports: Sequence[Distribution | None] = [None] * len(steps)
    if codec.sends_distributions:
        taken = [codec.read(reader, step) for step in steps]
        reader.expect(len(steps) * token_bits(codec, None))
        supports = distributions = [make() for make in taken]
    tokens = [_read_token(codec, support, reader) for support in supports]
    reader.finish()
    return tokens, distributions


def encode_distribution(codec: Codec, quantized: Quantized) -> bytes:
    """Return the payload of a single distribution."""
    writer = BitWriter(codec.header)
    codec.write(quantized, writer)
    return writer.to_bytes()


def decode_distribution(codec: Codec, data: bytes, step: Step = PLAIN) -> Distribution:
    """Return the distribution of a payload without tokens; see `Codec.decode`."""
    return codec.decode(data, step)


def _opened(codec: Codec, data: bytes) -> BitReader:
    """Return a reader after the header. Raises CodecError for another codec's header."""
    if not data.startswith(codec.header):
        raise other_codec(codec.name)
    return BitReader(data, len(codec.header))


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
