"""The messages: one set of frozen dataclasses, the same in both directions.

The constructor of a message checks its fields and raises MessageError. `encoding` turns it into
bytes and back; TYPE is its code. Integers named `*_us` are microseconds, `step` is the index of the
next answer token (0-based), a token is an integer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias, get_args

from dragonrt.side import Side
from dragonrt.wire import limits
from dragonrt.wire.fields import (
    FINITE,
    LINE,
    TOKEN,
    Check,
    Checked,
    identifier,
    integer,
    octets,
    tuple_of,
    utf8,
)
from dragonrt.wire.reasons import Reason
from dragonrt.wire.values import VALUES, Values

PROTOCOL_VERSION = 8


def _reason(value: str) -> Reason:
    """Return the reason, ERROR for an unknown code of another version."""
    try:
        return Reason(value)
    except ValueError:
        return Reason.ERROR


U32: TypeAlias = Annotated[int, integer(0, limits.MAX_32)]
Hash: TypeAlias = Annotated[int, integer(0, limits.MAX_64)]
Time: TypeAlias = Annotated[int, integer(0, limits.MAX_TIME_US)]
Step: TypeAlias = Annotated[int, integer(0, limits.MAX_STEP)]
Token: TypeAlias = Annotated[int, TOKEN]
Finite: TypeAlias = Annotated[float, FINITE]
Name: TypeAlias = Annotated[str, identifier(limits.MAX_NAME)]
Line: TypeAlias = Annotated[str, LINE]
Payload: TypeAlias = Annotated[bytes, octets(0, limits.MAX_PAYLOAD)]
Packed: TypeAlias = Annotated[Values, VALUES]
Role: TypeAlias = Annotated[
    Side, Check("'device' or 'cloud'", lambda value: value in ("device", "cloud"))
]
Why: TypeAlias = Annotated[Reason, Check("text", lambda value: isinstance(value, str), _reason)]


@dataclass(frozen=True, slots=True)
class Hello(Checked):
    """The first message of each side: its identity, and what must agree for a connection.

    `nonce` is 16 fresh random bytes, `vocabulary` the number of tokens, `clock_ms` the sender's
    wall clock in milliseconds since 1970 (0: unknown). `tokenizer`, `weights` and `corpus` are
    fingerprints. `weights` selects trained parts; an answer resumes only at a cloud of the same
    `corpus`. `software` and `model` are for people. Only role, tokenizer and vocabulary are
    compared.
    """

    TYPE: ClassVar[int] = 0
    version: Annotated[int, integer(1, limits.MAX_32)]
    nonce: Annotated[bytes, octets(limits.NONCE_BYTES, limits.NONCE_BYTES)]
    role: Role
    tokenizer: Name
    vocabulary: Annotated[int, integer(1, limits.MAX_TOKEN)]
    model: Annotated[str, identifier(limits.MAX_MODEL_NAME)]
    software: Name
    weights: Name = "unknown"
    corpus: Name = "unknown"
    clock_ms: Time = 0


@dataclass(frozen=True, slots=True)
class Authenticate(Checked):
    """The answer to a Hello: the proof of the shared key (see `connection`)."""

    TYPE: ClassVar[int] = 1
    proof: Annotated[bytes, octets(limits.PROOF_BYTES, limits.PROOF_BYTES)]


@dataclass(frozen=True, slots=True)
class Ping(Checked):
    """A probe: keep-alive, round-trip time, and with padding a part of a timed burst."""

    TYPE: ClassVar[int] = 2
    sequence: U32
    time_us: Time
    padding: Annotated[bytes, octets(0, limits.MAX_PADDING)] = b""


@dataclass(frozen=True, slots=True)
class Pong(Checked):
    """The echo of a Ping: its sequence and time, and the bytes its frame had on arrival."""

    TYPE: ClassVar[int] = 3
    sequence: U32
    time_us: Time
    received: U32


@dataclass(frozen=True, slots=True)
class Goodbye(Checked):
    """The end of the connection and of all its sessions, and why. Nothing may follow it."""

    TYPE: ClassVar[int] = 4
    reason: Why
    text: Line = ""


@dataclass(frozen=True, slots=True)
class SessionMessage(Checked):
    """A message of the session with that number.

    TYPE has its code in the lowest byte and its version less 1 above that.
    """

    TYPE: ClassVar[int]
    session: U32

    def listed(self) -> Sequence[int]:
        """Return its tokens that must be in the vocabulary."""
        return ()


@dataclass(frozen=True, slots=True)
class Open(SessionMessage):
    """Opens a session in a mode: a question that the other side answers with its own documents.

    `question` and `settings` are packed by `values`: the fields of a Question, and of the mode.
    """

    TYPE: ClassVar[int] = 5
    mode: Name
    question: Packed
    settings: Packed


@dataclass(frozen=True, slots=True)
class Source(Checked):
    """A document that the answer rests on: title, name of its file, relevance to the question.

    `bits` is the leave-one-out evidence of the answer's tokens. `sentence` is the sentence of the
    document that carries the answer.
    """

    title: Line
    name: Line
    relevance: Finite
    bits: Finite = 0.0
    sentence: Line = ""


_VALUES = tuple_of(identifier(limits.MAX_CODE), limits.MAX_MISSING)
_SOURCE = Check("a Source", lambda value: type(value) is Source)


@dataclass(frozen=True, slots=True)
class Attribution(Checked):
    """The sources of an answer among the sender's documents.

    `missing` are the numbers and codes of the answer that are in none of the documents read.
    `differing` are numbers of the answer that these documents hold otherwise: each, then theirs.
    """

    sources: Annotated[tuple[Source, ...], tuple_of(_SOURCE, limits.MAX_DOCUMENTS)] = ()
    missing: Annotated[tuple[str, ...], tuple_of(utf8(limits.MAX_CODE), limits.MAX_MISSING)] = ()
    differing: Annotated[tuple[str, ...], _VALUES] = ()


_ATTRIBUTION = Check("an Attribution", lambda value: value is None or type(value) is Attribution)


@dataclass(frozen=True, slots=True)
class Opened(SessionMessage):
    """The other side has read its documents and decodes.

    `evidence` is a fingerprint of the chunks that it reads and their relevances. An answer resumes
    only with the same: a session with another is closed.
    """

    TYPE: ClassVar[int] = 6
    prompt_tokens: Token
    load_us: Time
    prefill_us: Time
    evidence: Name = "none"


@dataclass(frozen=True, slots=True)
class Close(SessionMessage):
    """The end of one session; the connection stays.

    `retry_ms` is when to retry if the reason is BUSY (0: unknown). `attribution` answers a Conclude
    if the sender shares its sources.
    """

    TYPE: ClassVar[int] = 9
    reason: Why
    text: Line = ""
    retry_ms: U32 = 0
    attribution: Annotated[Attribution | None, _ATTRIBUTION] = None


@dataclass(frozen=True, slots=True)
class Conclude(SessionMessage):
    """The answer is complete: requests the end of the session, with an Attribution."""

    TYPE: ClassVar[int] = 17


@dataclass(frozen=True, slots=True)
class Working(SessionMessage):
    """The other side is still reading its documents; sent repeatedly."""

    TYPE: ClassVar[int] = 13


ConnectionMessage: TypeAlias = Hello | Authenticate | Ping | Pong | Goodbye
Message: TypeAlias = ConnectionMessage | SessionMessage

CONNECTION_MESSAGES: tuple[type[ConnectionMessage], ...] = get_args(ConnectionMessage)
SESSION_MESSAGES: list[type[SessionMessage]] = [Open, Working, Opened, Conclude, Close]
"""Those of every mode, and behind them those that modes registered (`registry`)."""
