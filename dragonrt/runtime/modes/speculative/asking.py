"""The device's side of an answer by speculative decoding."""

from collections.abc import Callable

from dragonrt.runtime.connector import Connector
from dragonrt.runtime.modes.blocks import BlockAsking, OnLoss
from dragonrt.runtime.modes.speculative.drafting import SpeculativeDrafting
from dragonrt.runtime.modes.speculative.plan import SpeculativePlan
from dragonrt.runtime.outcome import OnDecision, OnNotice
from dragonrt.runtime.preparing import Preparer


def beginning(
    preparer: Preparer,
    connector: Connector,
    on_loss: OnLoss = "alone",
    rate: Callable[[], float] | None = None,
) -> Callable[[SpeculativePlan, OnDecision, OnNotice], BlockAsking]:
    """What begins each answer of a conversation; `rate` as BlockAsking has it."""

    def begin(plan: SpeculativePlan, on_decision: OnDecision, on_notice: OnNotice) -> BlockAsking:
        return BlockAsking(
            preparer,
            connector,
            plan,
            SpeculativeDrafting(plan, preparer.vocabulary),
            on_decision=on_decision,
            on_notice=on_notice,
            on_loss=on_loss,
            schedules=plan.shape.controller is not None and rate is None,
            rate=rate,
        )

    return begin
