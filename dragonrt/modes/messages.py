"""Register a mode's own messages, each with what it discloses; and the one that modes share."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from typing_extensions import override

from dragonrt.privacy.disclosure import RULES, Discloses
from dragonrt.wire import connection, encoding, sessions
from dragonrt.wire.fields import Hash, Role, Step, Time, Token
from dragonrt.wire.messages import SESSION_MESSAGES, SessionMessage

M = TypeVar("M", bound=SessionMessage)


def message(
    code: int, *, discloses: Discloses, early: bool = False
) -> Callable[[type[M]], type[M]]:
    """Return a decorator that registers a mode's message.

    What it `discloses` is what the ledger says of it. It may come `early`, before the other side
    has opened the session.
    """

    def registered(kind: type[M]) -> type[M]:
        RULES[kind], kind.TYPE = discloses, code
        SESSION_MESSAGES.append(kind)
        encoding.add(kind)
        sessions.admit(kind, early=early)
        connection.admit(kind)
        return kind

    return registered


@message(8, discloses=lambda message, marker: {"tokens": int(message.token not in marker)})
class Target(SessionMessage, frozen=True):
    """The decided token of `step`, after the prefix of that hash, and who aggregates next.

    The times are those of a Draft. In mode "speculative" it is a token, without times, that the
    cloud decoded while no block waited.
    """

    step: Step
    prefix_hash: Hash
    token: Token
    aggregator: Role
    time_us: Time = 0
    echo_us: Time = 0

    @override
    def listed(self) -> Sequence[int]:
        return (self.token,)
