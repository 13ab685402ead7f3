"""What the device decides for an answer by approximate verification (SPEC 4, SPRINTER)."""

from dataclasses import dataclass
from typing import Any

from dragonrt.errors import DragonError
from dragonrt.runtime.block_plan import BlockPlan
from dragonrt.sampling.speculative import Rejection
from dragonrt.wire.limits import MAX_BLOCK

RUN_LENGTH = 32
CODEC = "topk:64:renorm"


@dataclass(frozen=True, slots=True, kw_only=True)
class SprinterPlan(BlockPlan):
    """A BlockPlan with what the cloud need not know.

    A drafted token that the verifier finds acceptable with a probability below `threshold` goes to
    the cloud (τ; None: the verifier's own), and so does the last one of `run_length` tokens in a
    row of which the cloud has verified none.
    """

    mode: str = "sprinter"
    rule: str = Rejection.name
    codec: str = CODEC
    threshold: float | None = None
    run_length: int = RUN_LENGTH

    def check(self) -> None:
        BlockPlan.check(self)
        if self.rule != Rejection.name:
            raise DragonError(
                f"sprinter verifies by the rule {Rejection.name}, not {self.rule}: leave --rule out"
            )
        self.check_distributions()
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise DragonError(f"the threshold {self.threshold} must lie between 0 and 1")
        if not 1 <= self.run_length <= MAX_BLOCK:
            raise DragonError(f"a run has from 1 to {MAX_BLOCK} tokens, not {self.run_length}")

    def settings(self) -> dict[str, Any]:
        """What a reader of the answer wants to know of it; above all that it is not exact."""
        return {
            **BlockPlan.settings(self),
            "approximate": True,
            "threshold": self.threshold,
            "run_length": self.run_length,
        }
