"""The worker's part of a federated answer: its distributions, truncated (SPEC 3; SPECFED step 4).

They are the model's own: sampling parameters apply to the mixture, at the coordinator.
"""

from collections.abc import Sequence

from dragonrt.distributions import (
    block_steps,
    codec,
    decode_block,
    distribution_codec,
    encode_distribution,
)
from dragonrt.runtime.block_plan import BlockPlan
from dragonrt.runtime.modes.blocks import BlockError, ReadBlock, Uploads
from dragonrt.runtime.modes.blocks.sizes import longest_upload
from dragonrt.runtime.predictor import NextToken
from dragonrt.wire import messages as wire


class FederatedVerifying:
    """Implements Verifying. Raises CodecError for a plan whose codec codes no distributions."""

    def __init__(self, plan: BlockPlan, vocabulary: int) -> None:
        self._blocks = codec("ids", vocabulary)
        self._codec = distribution_codec(plan.codec, vocabulary)
        self._longest = longest_upload(plan.codec)

    def read(self, block: wire.Block) -> ReadBlock:
        steps = block_steps(block.step, block.count)
        tokens, _ = decode_block(self._blocks, block.payload, steps)
        return ReadBlock(block.step, tokens, None, first=block.step)

    def answer(self, block: ReadBlock, said: Sequence[NextToken]) -> Uploads:
        payloads, size = [], 0
        for each in said:
            payloads.append(encode_distribution(self._codec, self._codec.quantize(each.p)))
            size += len(payloads[-1])
            if size > self._longest:
                raise BlockError(
                    f"an upload by the codec {self._codec.name} would have more than "
                    f"{self._longest} bytes: draft shorter blocks or use a coarser codec"
                )
        return Uploads(said[0].relevance, tuple(payloads))
