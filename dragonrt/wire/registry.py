"""Register the messages of a mode's own sessions."""

from typing import TypeVar

from dragonrt.wire import connection, encoding, sessions
from dragonrt.wire.messages import SESSION_MESSAGES, SessionMessage

M = TypeVar("M", bound=SessionMessage)

FREE = range(64, 128)
"""The codes that modes from outside may use."""


def register_message(kind: type[M], code: int, version: int = 1, *, early: bool = False) -> type[M]:
    """Add a type of message on this side; it may come `early`, before its session is opened.

    Raises ValueError for a code, from 0 to 255, that another message has.
    """
    if not 0 <= code <= encoding.CODES or encoding.known(code) is not None:
        raise ValueError(f"the code {code} is taken or out of range: choose one of {FREE}")
    kind.TYPE = code + (version - 1) * (encoding.CODES + 1)
    SESSION_MESSAGES.append(kind)
    encoding.add(kind)
    sessions.admit(kind, early=early)
    connection.admit(kind)
    return kind
