"""What the device decides for an answer by speculative decoding; the cloud need not know it all."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dragonrt.control import Controller
from dragonrt.distributions import ConformalThreshold
from dragonrt.errors import DragonError
from dragonrt.runtime.block_plan import BlockPlan
from dragonrt.runtime.modes.blocks import MAX_OUTSTANDING
from dragonrt.runtime.modes.blocks.sizes import longest_block
from dragonrt.sampling.stopping import StoppingRule
from dragonrt.wire.limits import MAX_BLOCK


class AcceptanceHead(Protocol):
    """A trained prediction, as language.Verifier makes it (SpecDec++)."""

    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        """That `token` will stand; `hidden` and `q` [V] are what the draft model said."""


@dataclass(frozen=True, slots=True)
class BlockShape:
    """When a block ends, how finely its distributions are sent, and how many are under way.

    A block has `length` tokens, or what `controller` chooses; it ends earlier where one token more
    would take it over `budget` bits, where `stopping` says so, which `acceptance` tells how likely
    each token is to stand, and behind a stop token.
    `outstanding` blocks may await their verdicts: with more than one, the next block is drafted and
    sent on the guess that those before it stand. `learning_rate` and `target` are η and α of
    C-SQS's threshold. Raises DragonError for numbers out of range.
    """

    length: int = 4
    budget: int | None = None
    controller: Controller | None = None
    stopping: StoppingRule | None = None
    acceptance: AcceptanceHead | None = None
    outstanding: int = 4
    learning_rate: float = 0.001
    target: float = 0.0005

    def __post_init__(self) -> None:
        if not 1 <= self.length <= MAX_BLOCK:
            raise DragonError(f"a block has from 1 to {MAX_BLOCK} tokens, not {self.length}")
        if self.budget is not None and self.budget < 1:
            raise DragonError(f"a block's budget of {self.budget} bits must be at least 1")
        if not 1 <= self.outstanding <= MAX_OUTSTANDING:
            raise DragonError(f"from 1 to {MAX_OUTSTANDING} blocks may be under way")

    def settings(self) -> dict[str, Any]:
        """What a reader of the answer wants to know of it."""
        return {
            "block_tokens": self.length if self.controller is None else None,
            "controller": None if self.controller is None else self.controller.name,
            "budget": self.budget,
            "outstanding": self.outstanding,
        }


# Within a few per cent of the fastest of 1 to 16 tokens and 1 to 8 blocks under way, at 100 ms
# round trip and acceptances from 0.5 to 0.95.
PIPELINED = BlockShape()
"""Drafting ahead of the verdicts."""
WAITING = BlockShape(length=8, outstanding=1)
"""Drafting only when the verdict on the block before is there, as the papers do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativePlan(BlockPlan):
    """A BlockPlan with the shape of its blocks, which stays on the device."""

    mode: str = "speculative"
    shape: BlockShape = field(default_factory=BlockShape)

    def check(self) -> None:
        BlockPlan.check(self)
        self.check_distributions()

    def settings(self) -> dict[str, Any]:
        return {**BlockPlan.settings(self), **self.shape.settings(), **self._conformal()}

    @property
    def longest_block_bits(self) -> int:
        """The bits that a block must not exceed, unless it has a single token."""
        longest = 8 * longest_block(self.codec) - 16
        return longest if self.shape.budget is None else min(longest, self.shape.budget)

    def first_threshold(self) -> ConformalThreshold | None:
        """C-SQS's threshold of the first token; None for the other codecs."""
        family, *arguments = self.codec.split(":")
        if family != "csqs":
            return None
        return ConformalThreshold(float(arguments[0]), self.shape.learning_rate, self.shape.target)

    def _conformal(self) -> dict[str, float]:
        if self.first_threshold() is None:
            return {}
        return {"learning_rate": self.shape.learning_rate, "target": self.shape.target}
