"""The cloud's part of SPRINTER: one forward, and the verdict on the last token (SPEC 4)."""

from collections.abc import Sequence

from dragonrt.distributions import block_steps, decode_block
from dragonrt.runtime.block_plan import BlockPlan
from dragonrt.runtime.modes.blocks.errors import BlockError
from dragonrt.runtime.modes.blocks.verifying import InPlace, ReadBlock
from dragonrt.runtime.predictor import NextToken
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.sprinter import verify_last
from dragonrt.wire import messages as wire


class SprinterVerifying:
    """Implements Verifying: the text goes on with one token, the drafted one if it stands."""

    def __init__(self, plan: BlockPlan, vocabulary: int) -> None:
        plan.check_distributions()
        self._rule = plan.speculative_rule()
        self._noise = Noise(plan.seed)
        self._codec = plan.block_codec(vocabulary)

    def read(self, block: wire.Block) -> ReadBlock:
        if block.count != 1:
            raise BlockError(f"a block of a sprinter has one token to verify, not {block.count}")
        steps = block_steps(block.step, 1, block.resolutions)
        tokens, q = decode_block(self._codec, block.payload, steps)
        return ReadBlock(block.step, tokens, q, block.step)

    def answer(self, block: ReadBlock, said: Sequence[NextToken]) -> InPlace:
        if block.q is None:
            raise BlockError("a sprinter's block needs the distribution of its token")
        p = self._rule.shape(said[0].p)
        stands, token = verify_last(block.tokens[0], block.q[0], p, self._noise, block.step)
        return InPlace(int(stands), token)
