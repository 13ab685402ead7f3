"""What a cloud does with a session that a device opens: the mode its first message asks for."""

from collections.abc import Coroutine
from typing import Any

from dragonrt.errors import DragonError
from dragonrt.runtime.modes import dragon
from dragonrt.runtime.peer import Answerer, Opening, Peer, Session
from dragonrt.runtime.preparing import Preparer
from dragonrt.wire.messages import Open


def answerer(preparer: Preparer) -> Answerer:
    """What a cloud's peers call for every session that a device opens."""

    def answer(peer: Peer, message: Opening) -> tuple[Session, Coroutine[Any, Any, None]]:
        if isinstance(message, Open):
            answering = dragon.Answering(preparer, peer, message)
            return answering.session, answering.work()
        raise DragonError(
            f"this side has no mode {message.mode!r}: install the same dragonrt on both sides"
        )

    return answer
