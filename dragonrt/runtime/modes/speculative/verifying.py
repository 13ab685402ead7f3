"""The cloud's part of speculative decoding: the verdict on a block (SPEC 2)."""

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import block_steps, decode_block
from dragonrt.runtime.block_plan import BlockPlan
from dragonrt.runtime.modes.blocks.errors import BlockError
from dragonrt.runtime.modes.blocks.sizes import longest_block
from dragonrt.runtime.modes.blocks.verifying import ReadBlock
from dragonrt.runtime.predictor import NextToken
from dragonrt.sampling.speculative import SpeculativeRule, Verdict
from dragonrt.wire import messages as wire


class SpeculativeVerifying:
    """Implements Verifying: every token of a block is judged, and one more is given.

    Raises SamplingError for a rule that needs distributions where the codec sends none.
    """

    def __init__(self, plan: BlockPlan, vocabulary: int) -> None:
        plan.check_distributions()
        self._rule = plan.speculative_rule()
        self._codec = plan.block_codec(vocabulary)
        self._longest = longest_block(plan.codec)

    def read(self, block: wire.Block) -> ReadBlock:
        if len(block.payload) > self._longest:
            raise BlockError(
                f"a block of {len(block.payload)} bytes takes too long to read: send at most "
                f"{self._longest}"
            )
        steps = block_steps(block.step, block.count, block.resolutions)
        tokens, q = decode_block(self._codec, block.payload, steps)
        return ReadBlock(block.step, tokens, q, block.step)

    def answer(self, block: ReadBlock, said: Sequence[NextToken]) -> Verdict:
        p = _Shaped(self._rule, said)
        return self._rule.verify(block.step, block.tokens, block.q, p)


class _Shaped(Sequence[NDArray[np.float64]]):
    """What to verify with, shaped where it is looked up: nothing behind a refused token is."""

    def __init__(self, rule: SpeculativeRule, said: Sequence[NextToken]) -> None:
        self._rule = rule
        self._said = said

    def __len__(self) -> int:
        return len(self._said)

    @overload
    def __getitem__(self, index: int) -> NDArray[np.float64]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[NDArray[np.float64]]: ...
    def __getitem__(
        self, index: int | slice
    ) -> NDArray[np.float64] | Sequence[NDArray[np.float64]]:
        if isinstance(index, slice):
            return _Shaped(self._rule, self._said[index])
        return self._rule.shape(self._said[index].p)
