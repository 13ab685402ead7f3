"""What travels: blocks of drafted tokens with their distributions, and distributions alone.

A draft's payload is one distribution alone, its token being a field of the message; an upload's
payloads are such, too.

The bits: the codec's header (a byte, or none where the distributions begin with their own), the
distributions one after the other, then the tokens, each as its rank in the support of its
distribution or as its id. Zero bits fill the last byte.
"""

from collections.abc import Sequence

from dragonrt.distributions.bits import BitReader, BitWriter
from dragonrt.distributions.distribution import Distribution
from dragonrt.distributions.protocol import PLAIN, Codec, Quantized, Step, other_codec, token_bits
from dragonrt.errors import CodecError


def block_steps(first: int, count: int, resolutions: Sequence[int] = ()) -> list[Step]:
    """The steps of a block's `count` tokens from `first` on.

    `resolutions` are those that a message names: none, one for all, or one for each. Raises
    CodecError for another number of them.
    """
    if len(resolutions) not in (0, 1, count):
        raise CodecError(f"block has {count} tokens but {len(resolutions)} resolutions")
    each = resolutions if len(resolutions) == count else tuple(resolutions or (None,)) * count
    return [Step(first + index, resolution) for index, resolution in enumerate(each)]


def encode_block(codec: Codec, tokens: Sequence[int], quantized: Sequence[Quantized]) -> bytes:
    """The payload of drafted tokens and of the distributions that each was drafted from.

    A codec that sends no distributions looks at none. Raises CodecError for a token that its
    distribution gives no mass, and for what another codec quantized.
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
    """The tokens and the distributions (None where none are sent) of a payload.

    `steps` are those that the distributions were quantized with, one for each token. Raises
    CodecError for bytes that are not such a block of this codec.
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
    """The payload of one distribution alone."""
    writer = BitWriter(codec.header)
    codec.write(quantized, writer)
    return writer.to_bytes()


def decode_distribution(codec: Codec, data: bytes, step: Step = PLAIN) -> Distribution:
    """The distribution of a payload without tokens.

    Raises CodecError for bytes that are not such a payload of this codec, or if it sends none.
    """
    reader = _opened(codec, data)
    make = codec.read(reader, step)
    reader.finish()
    return make()


def _opened(codec: Codec, data: bytes) -> BitReader:
    """A reader behind the header. Raises CodecError where the header is another codec's."""
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
