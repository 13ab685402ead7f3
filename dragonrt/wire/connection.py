"""The state machine of one connection: handshake, then many sessions over one stream.

It has no socket, task or clock. `receive_data` turns bytes into events, `send` a message into
bytes. `data_to_send` returns the bytes of the handshake and of automatic replies.

    HELLO --Hello--> AUTHENTICATE --Authenticate--> OPEN          any state --Goodbye--> CLOSED

Each side sends its Hello at once, and its Authenticate after the other's Hello. The proof is
HMAC-SHA256(shared key, label, own role, device's nonce, cloud's nonce). It cannot be reflected (the
roles differ) or replayed (the nonces are fresh).
"""

import hashlib
import hmac
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from dragonrt.side import Side
from dragonrt.wire.encoding import (
    MAX_BODY,
    PACED,
    PADDED_HEADER,
    FrameDecoder,
    decode,
    encode,
    encode_frame,
    in_padded_frames,
    padded_frame,
)
from dragonrt.wire.messages import (
    SESSION_MESSAGES,
    Authenticate,
    Close,
    Goodbye,
    Hello,
    Message,
    Ping,
    Pong,
    SessionMessage,
)
from dragonrt.wire.reasons import (
    HandshakeError,
    LocalProtocolError,
    MessageError,
    Reason,
    RemoteProtocolError,
)
from dragonrt.wire.sessions import Sessions, SessionState


class State(Enum):
    """The state of a connection: it waits for a Hello, for an Authenticate, is open, or closed."""

    HELLO = "hello"
    AUTHENTICATE = "authenticate"
    OPEN = "open"
    CLOSED = "closed"


# What may be received in each state, and the state that follows.
RECEIVE: Final[dict[State, dict[type[Message], State]]] = {
    State.HELLO: {Hello: State.AUTHENTICATE, Goodbye: State.CLOSED},
    State.AUTHENTICATE: {Authenticate: State.OPEN, Goodbye: State.CLOSED},
    State.OPEN: {
        Goodbye: State.CLOSED,
        **dict.fromkeys((Ping, Pong, *SESSION_MESSAGES), State.OPEN),
    },
    State.CLOSED: {},
}


def admit(kind: type[SessionMessage]) -> None:
    """Let open Connections accept a mode's message type `kind`; called where modes define it."""
    RECEIVE[State.OPEN][kind] = State.OPEN


Event: TypeAlias = Hello | Pong | Goodbye | SessionMessage

HANDSHAKE_LIMIT = 4096  # bytes in a frame before authentication
DEFAULT_MAX_SESSIONS = 64
_PROOF_LABEL = b"dragonrt proof 1 "


class Traffic(NamedTuple):
    """Bytes sent and received on one connection, and how many bytes of each are padding."""

    sent: int = 0
    received: int = 0
    padding_sent: int = 0
    padding_received: int = 0

    @classmethod
    def total(cls, each: "Iterable[Traffic]") -> "Traffic":
        return cls(*map(sum, zip(*each, strict=True)))


class Connection:
    """The protocol of one side of a connection: a transport gives it bytes and sends its bytes.

    `hello` describes this side. The handshake fails unless both have the same shared `key` or none.
    """

    def __init__(
        self,
        role: Side,
        hello: Hello,
        key: bytes | None = None,
        *,
        max_sessions: int = DEFAULT_MAX_SESSIONS,
    ) -> None:
        if hello.role != role:
            raise LocalProtocolError(
                Reason.ROLE, f"a {role} connection cannot say hello as the {hello.role}"
            )
        self.state = State.HELLO
        self.peer: Hello | None = None
        """The other side's Hello, authenticated once the state is OPEN."""
        self._hello = hello
        self._key = key or b""
        self._frames = FrameDecoder(HANDSHAKE_LIMIT)
        self._sessions = Sessions(hello.vocabulary, max_sessions)
        self._outgoing = bytearray()
        self._sent = self._received = self._padding_sent = 0
        self.replied_bytes = 0
        """The bytes of all Pongs and Closes that were made: the other side can cause any number."""
        self._padded = False
        self._waiting: bytearray | None = None  # for the ticks of a constant rate
        self._queue(hello)

    def data_to_send(self) -> bytes:
        """Return the bytes to write, and clear them: call at the start and after `receive_data`."""
        data = bytes(self._outgoing)
        self._outgoing.clear()
        return data

    def receive_data(self, data: bytes) -> list[tuple[Event, int]]:
        """Parse received bytes, cut anywhere; return (event, size of its frame) of complete ones.

        The other side's Hello is returned once the key is proven. Pings are answered, not returned.
        Raises RemoteProtocolError when the connection ends, HandshakeError if it was not open:
        write `data_to_send`, then close the stream.
        """
        events: list[tuple[Event, int]] = []
        if self.closed:
            return events
        self._received += len(data)
        self._frames.feed(data)
        try:
            while self.state is not State.CLOSED and (body := self._frames.next_body()) is not None:
                event = self._receive_body(body)
                if event is not None:
                    events.append((event, self._frames.frame_bytes))
        except RemoteProtocolError as error:
            in_handshake = self.state in (State.HELLO, State.AUTHENTICATE)
            if not self.closed:
                self._queue(Goodbye(error.reason, error.text))
                self._end()
            if in_handshake and not isinstance(error, HandshakeError):
                raise HandshakeError(error.reason, error.text) from None
            raise
        return events

    def eof(self) -> list[tuple[Event, int]]:
        """Close after the received stream has ended: return [(Goodbye, 0)], an event and its size.

        The Goodbye has the reason LOST. Raises HandshakeError if the handshake was not complete.
        """
        before, partial = self.state, self._frames.has_partial_frame
        if before is State.CLOSED:
            return []
        self._end()
        if before is not State.OPEN:
            raise HandshakeError(
                Reason.LOST,
                "the other side closed the connection during the handshake: is dragonrt running "
                "there, and is TLS on at both ends or at neither?",
            )
        where = "in the middle of a message" if partial else "without a word"
        lost = Goodbye(Reason.LOST, f"the other side closed the connection {where}")
        return [(lost, 0)]

    def send(self, message: Message) -> bytes:
        """Queue `message`, and return all queued bytes in order. Raises LocalProtocolError."""
        self.queue(message)
        return self.data_to_send()

    def queue(self, message: Message) -> int:
        """Add `message` to `data_to_send`; return the size of its frame in bytes, without padding.

        Raises LocalProtocolError if the connection's or the session's state does not allow it.
        """
        ready = self.state is State.OPEN and not isinstance(message, Hello | Authenticate)
        if self.closed or not (ready or isinstance(message, Goodbye)):
            text = f"a {type(message).__name__} cannot be sent in state {self.state.value}"
            raise LocalProtocolError(Reason.OUT_OF_ORDER, text)
        if isinstance(message, SessionMessage):
            self._sessions.send(message)
        elif isinstance(message, Goodbye):
            self._end()
        return self._queue(message)

    @property
    def closed(self) -> bool:
        return self.state is State.CLOSED

    def session_state(self, session: int) -> SessionState:
        """Return the state of a session; NONE if it is unknown or closed."""
        return self._sessions.state(session)

    @property
    def sessions(self) -> tuple[int, ...]:
        """Return the numbers of sessions that are open or about to be opened, oldest first."""
        return self._sessions.known()

    def traffic(self) -> Traffic:
        padding = self._padding_sent, self._frames.padding_bytes
        return Traffic(self._sent, self._received, *padding)

    # In padded frames.

    def pad(self) -> None:
        """Send all further messages in padded frames, which hide the sizes of messages."""
        self._padded = True

    def pace(self) -> None:
        """Begin a constant rate: messages wait until `next_padded_frame` takes them, at a tick."""
        if self._waiting is None:
            self._waiting = bytearray()

    def unpace(self) -> None:
        """End the constant rate: `data_to_send` has what `pace` held back, in padded frames."""
        waiting, self._waiting = self._waiting, None
        if waiting:  # it may begin within a frame, whose first part went out in a padded one
            self._write(bytes(waiting), padded=True)

    @property
    def waiting(self) -> int:
        """Return how many bytes `pace` holds back until the next calls of `next_padded_frame`."""
        return len(self._waiting or b"")

    def next_padded_frame(self) -> bytes:
        """Return a frame of 1024 bytes to send at a tick: bytes held back by `pace`, then zeros."""
        waiting = self._waiting if self._waiting is not None else bytearray()
        content = bytes(waiting[: PACED - PADDED_HEADER])
        del waiting[: len(content)]
        self._sent += PACED
        self._padding_sent += PACED - len(content)
        return padded_frame(content, PACED)

    # From a frame to an event.

    def _receive_body(self, body: bytes) -> Event | None:
        allowed = RECEIVE[self.state]
        try:
            message = decode(body, allowed)
            if isinstance(message, SessionMessage):
                return self._sessions.receive(message)
        except MessageError as error:
            if self.state is State.OPEN and error.session is not None:
                close = Close(error.session, error.reason, error.text)
                self._queue(close)
                return close if self._sessions.close(close.session) else None
            raise RemoteProtocolError(error.reason, error.text) from None
        match message:
            case Hello():
                self._check_peer(message)
                self.peer = message
                self._queue(Authenticate(self._proof(self._hello)))
            case Authenticate():
                return self._authenticated(message)
            case Ping():
                received = self._frames.frame_bytes
                self._queue(Pong(message.sequence, message.time_us, received))
            case Pong():
                return message
            case Goodbye():
                before = self.state
                self._end()
                if before is not State.OPEN:
                    why = message.text or message.reason
                    text = f"the other side refused the connection: {why}"
                    raise HandshakeError(message.reason, text)
                return message
        self.state = allowed[type(message)]
        return None

    def _check_peer(self, peer: Hello) -> None:
        """Compare the two Hellos; the errors name both roles and read the same on each side."""
        if peer.role == self._hello.role:
            raise HandshakeError(
                Reason.ROLE,
                f"both sides are the {peer.role}: start one as the device and one as the cloud",
            )
        device, cloud = sorted((self._hello, peer), key=lambda each: each.role, reverse=True)
        if device.tokenizer != cloud.tokenizer:
            raise HandshakeError(
                Reason.TOKENIZER,
                f"the device's {device.model} has tokenizer {_shorten(device.tokenizer)}, the "
                f"cloud's {cloud.model} has {_shorten(cloud.tokenizer)}: start both sides with "
                "models that share a tokenizer, as those of one family do",
            )
        if device.vocabulary != cloud.vocabulary:
            raise HandshakeError(
                Reason.VOCABULARY,
                f"the device's {device.model} has {device.vocabulary} tokens, the cloud's "
                f"{cloud.model} has {cloud.vocabulary} with the same tokenizer: start both sides "
                "with models whose layers of tokens are equally long",
            )

    def _proof(self, prover: Hello) -> bytes:
        nonces = {hello.role: hello.nonce for hello in (self._hello, self.peer) if hello}
        text = _PROOF_LABEL + prover.role.encode() + nonces["device"] + nonces["cloud"]
        return hmac.digest(self._key, text, hashlib.sha256)

    def _authenticated(self, message: Authenticate) -> Hello:
        peer = self.peer
        if peer is None or not hmac.compare_digest(message.proof, self._proof(peer)):
            raise HandshakeError(
                Reason.KEY, "shared key does not match; give both sides the same --key-file"
            )
        self.state = State.OPEN
        self._frames.limit = MAX_BODY
        return peer

    # Bytes out.

    def _queue(self, message: Message) -> int:
        # A padded Ping measures the link, so its padding is not compressed.
        frame = encode_frame(encode(message), compress=not isinstance(message, Ping))
        if isinstance(message, Pong | Close):
            self.replied_bytes += len(frame)
        if isinstance(message, Goodbye):
            self.unpace()
        if self._waiting is not None:
            self._waiting += frame
        else:
            self._write(frame, self._padded)
        return len(frame)

    def _write(self, frames: bytes, padded: bool) -> None:
        data = in_padded_frames(frames) if padded else frames
        self._outgoing += data
        self._sent += len(data)
        self._padding_sent += len(data) - len(frames)

    def _end(self) -> None:
        self.state = State.CLOSED
        self._sessions.clear()


def _shorten(fingerprint: str) -> str:
    return fingerprint if len(fingerprint) <= 12 else f"{fingerprint[:8]}…"
