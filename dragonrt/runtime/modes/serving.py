"""What a cloud does with a session that a device opens: the mode its first message asks for."""

from collections.abc import Callable, Coroutine
from typing import Any

from dragonrt.errors import DragonError
from dragonrt.runtime.block_plan import BlockPlan
from dragonrt.runtime.modes import dragon
from dragonrt.runtime.modes.blocks import BlockAnswering, Verifying
from dragonrt.runtime.modes.federated import FederatedVerifying
from dragonrt.runtime.modes.speculative import SpeculativeVerifying
from dragonrt.runtime.modes.sprinter import SprinterVerifying
from dragonrt.runtime.peer import Answerer, Opening, Peer, Session
from dragonrt.runtime.preparing import Preparer
from dragonrt.wire.messages import Open

VERIFYING: dict[str, Callable[[BlockPlan, int], Verifying]] = {
    "federated": FederatedVerifying,
    "speculative": SpeculativeVerifying,
    "sprinter": SprinterVerifying,
}
"""What each mode with blocks does on this side, made from its plan and the vocabulary."""


def answerer(preparer: Preparer) -> Answerer:
    """What a cloud's peers call for every session that a device opens."""

    def answer(peer: Peer, message: Opening) -> tuple[Session, Coroutine[Any, Any, None]]:
        if isinstance(message, Open):
            answering = dragon.Answering(preparer, peer, message)
            return answering.session, answering.work()
        make = VERIFYING.get(message.mode)
        if make is None:
            raise DragonError(
                f"this side has no mode {message.mode!r}: install the same dragonrt on both sides"
            )
        plan = BlockPlan.of(message)
        verifying = make(plan, preparer.vocabulary)
        blocks = BlockAnswering(preparer, peer, message, plan, verifying)
        return blocks, blocks.work()

    return answer
