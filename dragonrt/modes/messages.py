"""Register a mode's own messages, each with what it discloses; and the one that modes share."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from typing_extensions import override

from dragonrt.privacy.disclosure import RULES, Discloses
from dragonrt.wire.fields import Hash, Role, Step, Time, Token
from dragonrt.wire.messages import SessionMessage
from dragonrt.wire.registry import register_message

M = TypeVar("M", bound=SessionMessage)


def message(
    code: int, version: int = 1, *, discloses: Discloses, early: bool = False
) -> Callable[[type[M]], type[M]]:
    """Return a decorator that registers a mode's message; codes from 64 to 127 are free.

    What it `discloses` is what the ledger says of it. It may come `early`, before the other side
    has opened the session. Both sides register the same version.
    """

    def registered(kind: type[M]) -> type[M]:
        RULES[kind] = discloses
        return register_message(kind, code, version, early=early)

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
