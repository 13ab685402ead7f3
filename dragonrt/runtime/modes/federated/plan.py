"""What a coordinator wants of one answer of several workers (SPEC 3)."""

from dataclasses import dataclass
from typing import Any, Literal

from dragonrt.distributions import distribution_codec
from dragonrt.errors import DragonError
from dragonrt.runtime.block_plan import BlockPlan
from dragonrt.sampling.speculative import SampleQuantize
from dragonrt.wire.limits import MAX_BLOCK

Weighing = Literal["fixed", "relevance"]
"""Where the weights of a round come from: the settings, or the relevance of each's documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedPlan(BlockPlan):
    """A BlockPlan whose `codec` codes the workers' uploads; drafted tokens travel as ids.

    `block_tokens` are drafted at a time; with 0 the workers decode token by token. A round waits
    for its workers at most `quorum_deadline_s` seconds (None: by the measured round trips), longer
    while they read the question; with `require_all` it waits for all of them. The workers know
    nothing of these.
    """

    mode: str = "federated"
    codec: str = "topk:64:residual"
    block_tokens: int = 8
    weighing: Weighing = "fixed"
    quorum_deadline_s: float | None = None
    require_all: bool = False

    def settings(self) -> dict[str, Any]:
        """What a reader of the answer wants to know of it."""
        return {
            "mode": self.mode,
            "rule": self.rule,
            "codec": self.codec,
            "block_tokens": self.block_tokens,
            "weighing": self.weighing,
        }

    def check(self) -> None:
        """Refuse what this mode cannot do, with one line."""
        distribution_codec(self.codec, 2)
        self.speculative_rule()
        if self.rule == SampleQuantize.name:
            raise DragonError(
                f"the rule {self.rule} is a baseline of another mode: use coupled or rejection"
            )
        if not 0 <= self.block_tokens < MAX_BLOCK:
            raise DragonError(f"a block holds 0 to {MAX_BLOCK - 1} tokens, not {self.block_tokens}")
        if self.quorum_deadline_s is not None and not self.quorum_deadline_s > 0:
            raise DragonError("the quorum's deadline must be above 0 seconds")
