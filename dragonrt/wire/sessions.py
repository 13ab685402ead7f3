"""The sessions of one connection: which message may come when.

A fault in one session raises MessageError with its number; `Connection` then closes it alone.
"""

from collections import OrderedDict
from enum import Enum
from typing import Final, TypeAlias

from dragonrt.wire import messages as wire
from dragonrt.wire.messages import Close, Message, Open, SessionMessage
from dragonrt.wire.reasons import LocalProtocolError, MessageError, Reason


class SessionState(Enum):
    """The state of a session, as this side sees it: who opened it, and whether it is open yet."""

    NONE = "none"  # not opened yet, or closed
    ASKED = "asked"  # we sent Open and wait for Opened
    INVITED = "invited"  # we received Open and have not sent Opened
    OPEN = "open"


_Steps: TypeAlias = dict[SessionState, dict[type[Message], SessionState]]


def _steps(answering: SessionState, asking: SessionState) -> _Steps:
    """Return the table of one direction; before OPEN, answers pass in these states."""
    return {
        SessionState.NONE: {Open: asking},
        answering: {
            wire.Working: answering,
            wire.Opened: SessionState.OPEN,
            Close: SessionState.NONE,
        },
        asking: {Close: SessionState.NONE},
        SessionState.OPEN: {wire.Conclude: SessionState.OPEN, Close: SessionState.NONE},
    }


# What may be received and sent in each state, and the state that follows.
RECEIVE: Final = _steps(SessionState.ASKED, SessionState.INVITED)
SEND: Final = _steps(SessionState.INVITED, SessionState.ASKED)


def admit(kind: type[SessionMessage], *, early: bool) -> None:
    """Let both sides of open sessions send a mode's message type `kind`; called at its definition.

    If `early`, the side that opened a session may send it before the other side's Opened.
    """
    for table, asking in ((RECEIVE, SessionState.INVITED), (SEND, SessionState.ASKED)):
        table[SessionState.OPEN][kind] = SessionState.OPEN
        if early:
            table[asking][kind] = asking


REMEMBERED_CLOSED = 256  # sessions we closed, for which messages may still be under way


class Sessions:
    """The states of a connection's sessions, at most `limit` at once: which message may come when.

    Tokens in messages must be below `vocabulary`, the model's token count. A session's number may
    be used again, but a late Close of the old session then ends the new one.
    """

    def __init__(self, vocabulary: int, limit: int) -> None:
        self._vocabulary = vocabulary
        self._limit = limit
        self._states: dict[int, SessionState] = {}
        self._closed_by_us: OrderedDict[int, None] = OrderedDict()

    def state(self, session: int) -> SessionState:
        """Return the state of a session; NONE if it is unknown or closed."""
        return self._states.get(session, SessionState.NONE)

    def receive(self, message: SessionMessage) -> SessionMessage | None:
        """Record a received message and return it, or None if it is late for a closed session.

        Raises MessageError if it may not come now or has a token outside the vocabulary.
        """
        session, kind = message.session, type(message)
        state = self._states.get(session, SessionState.NONE)
        if state is SessionState.NONE and kind is not Open:
            if kind is Close or session in self._closed_by_us:
                return None
            text = f"there is no session {session} here"
            raise MessageError(Reason.UNKNOWN_SESSION, text, session)
        following = RECEIVE[state].get(kind)
        if following is None:
            text = f"{kind.__name__} may not come while the session is in state {state.value}"
            raise MessageError(Reason.OUT_OF_ORDER, text, session)
        if kind is Open and len(self._states) >= self._limit:
            text = f"there are already {self._limit} sessions on this connection"
            raise MessageError(Reason.BUSY, text, session)
        self._follow(message, following)
        self._closed_by_us.pop(session, None)
        return message

    def send(self, message: SessionMessage) -> None:
        """Record a message to send. Raises LocalProtocolError if its session does not allow it."""
        session, kind = message.session, type(message)
        state = self.state(session)
        following = SEND[state].get(kind)
        if following is None:
            text = f"{kind.__name__} cannot be sent: session {session} is in state {state.value}"
            raise LocalProtocolError(Reason.OUT_OF_ORDER, text)
        try:
            self._follow(message, following)
        except MessageError as error:
            raise LocalProtocolError(error.reason, error.text) from None
        if kind is Close:
            self._remember_closed(session)

    def close(self, session: int) -> bool:
        """End a session after a fault of the other side; return whether it was open before."""
        self._remember_closed(session)
        return self._states.pop(session, None) is not None

    def clear(self) -> None:
        self._states.clear()

    def known(self) -> tuple[int, ...]:
        """Return the numbers of sessions that are open or about to be opened, oldest first."""
        return tuple(self._states)

    def _follow(self, message: SessionMessage, state: SessionState) -> None:
        """Check the tokens of a message, and set the state that follows it."""
        if (largest := max(message.listed(), default=0)) >= self._vocabulary:
            text = f"token {largest} is outside the vocabulary of {self._vocabulary}"
            raise MessageError(Reason.MALFORMED, text, message.session)
        self._states[message.session] = state
        if state is SessionState.NONE:
            del self._states[message.session]

    def _remember_closed(self, session: int) -> None:
        """Remember a session that we closed, whose late messages are no fault of the other side."""
        self._closed_by_us[session] = None
        if len(self._closed_by_us) > REMEMBERED_CLOSED:
            self._closed_by_us.popitem(last=False)
