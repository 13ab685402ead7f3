"""The reasons why sessions and connections end, and the errors that carry them.

    DragonError
    └── WireError                  has `.reason`, a code both sides know, and one line of text
        ├── MessageError           a message with an invalid field; `.session` if it is known
        ├── BusyError              this side is at its limit; retry after `.retry_s`
        ├── LocalProtocolError     our own code sent something the state does not allow
        └── RemoteProtocolError    the other side broke the protocol; the connection is over
            └── HandshakeError     the two sides do not fit together; the line says what to do

Bytes from the other side only ever raise RemoteProtocolError out of a `Connection`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from typing_extensions import override

from dragonrt.errors import DragonError


class Reason(StrEnum):
    """The code in a Close or Goodbye: why a session or a connection ended."""

    FINISHED = "finished"  # session: the answer is complete
    CANCELLED = "cancelled"  # session: the user cancelled it
    BUSY = "busy"  # both: too many already
    UNKNOWN_SESSION = "unknown_session"  # session: no such session here
    UNSUPPORTED = "unsupported"  # session: a parameter this side cannot honour
    OUT_OF_ORDER = "out_of_order"  # both: a message that may not come now
    MALFORMED = "malformed"  # both: a message or frame that cannot be read
    PROTOCOL = "protocol"  # session: a message that does not fit the answer
    MUTE = "mute"  # session: nothing useful came for too long
    STEERED = "steered"  # session: the cloud steered the answer; never sent
    ERROR = "error"  # both: something failed at the sender
    INTERNAL = "internal"  # session: a defect of the sender
    TOO_LARGE = "too_large"  # connection: a frame beyond the limit
    SHUTDOWN = "shutdown"  # connection: the process ends in order
    IDLE = "idle"  # both: nothing was received, or taken in, for too long
    LOST = "lost"  # connection: it ended without a Goodbye; never sent
    VERSION = "version"  # connection: another version of the protocol
    ROLE = "role"  # connection: two devices, or two clouds
    TOKENIZER = "tokenizer"  # connection: the models do not share a tokenizer
    VOCABULARY = "vocabulary"  # connection: the models' vocabularies differ in size
    KEY = "key"  # connection: the shared keys differ

    @classmethod
    @override
    def _missing_(cls, value: object) -> Self:
        """Return the reason for a code of another version: ERROR."""
        return cls("error")


class WireError(DragonError):
    """Base of the wire protocol's errors: a `reason` code, and a line of `text` for the user."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


@dataclass(frozen=True, slots=True)
class End:
    """Why a session or a connection ended: a reason code, and one line for the user."""

    reason: Reason
    text: str

    @classmethod
    def of(cls, error: DragonError, usual: Reason) -> Self:
        """Return an End from an error: its text, and its reason or, if it has none, `usual`."""
        return cls(error.reason if isinstance(error, WireError) else usual, str(error))

    @override
    def __str__(self) -> str:
        return self.text


class MessageError(WireError):
    """A malformed or mistimed message: `session` ends, or the connection if `session` is None."""

    def __init__(self, reason: Reason, text: str, session: int | None = None) -> None:
        super().__init__(reason, text)
        self.session = session


class BusyError(WireError):
    """This side has too many answers or connections: retry in `retry_s` seconds (0: any time)."""

    def __init__(self, text: str, retry_s: float = 0.0) -> None:
        when = f": try again in {retry_s:.1f} s" if retry_s else ""
        super().__init__(Reason.BUSY, f"{text}{when}")
        self.retry_s = retry_s


class LocalProtocolError(WireError):
    """A bug on this side: it tried to send what the state of the connection does not allow."""


class RemoteProtocolError(WireError):
    """The other side broke the protocol; `Connection.data_to_send` has a Goodbye for it."""


class HandshakeError(RemoteProtocolError):
    """The two sides cannot work together; the text names the difference and the remedy."""
