"""The device's side of an answer by approximate verification."""

from collections.abc import Callable
from dataclasses import replace

from dragonrt.runtime.connector import Connector
from dragonrt.runtime.modes.blocks import BlockAsking, OnLoss
from dragonrt.runtime.modes.sprinter.drafting import SprinterDrafting, TokenVerifier
from dragonrt.runtime.modes.sprinter.plan import SprinterPlan
from dragonrt.runtime.outcome import OnDecision, OnNotice
from dragonrt.runtime.preparing import Preparer


def beginning(
    preparer: Preparer,
    connector: Connector,
    verifier: TokenVerifier,
    on_loss: OnLoss = "alone",
) -> Callable[[SprinterPlan, OnDecision, OnNotice], BlockAsking]:
    """What begins each answer of a conversation; its plan then says which threshold is used."""

    def begin(plan: SprinterPlan, on_decision: OnDecision, on_notice: OnNotice) -> BlockAsking:
        if plan.threshold is None:
            plan = replace(plan, threshold=verifier.threshold)
        return BlockAsking(
            preparer,
            connector,
            plan,
            SprinterDrafting(plan, preparer.vocabulary, verifier),
            on_decision=on_decision,
            on_notice=on_notice,
            on_loss=on_loss,
        )

    return begin
