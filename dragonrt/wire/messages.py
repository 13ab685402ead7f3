"""The messages: one set of frozen structs, the same in both directions.

TYPE is the code of a message's type. Integers named `*_us` are microseconds, `step` is the index of
the next answer token (0-based), a token is an integer.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, TypeAlias, get_args

from msgspec import Meta

from dragonrt.wire.fields import (
    MAX_32,
    MAX_CODE,
    MAX_DOCUMENTS,
    MAX_MISSING,
    MAX_MODEL_NAME,
    MAX_PADDING,
    MAX_TOKEN,
    NONCE_BYTES,
    PROOF_BYTES,
    U32,
    Fields,
    Finite,
    Line,
    Name,
    Packed,
    Role,
    Time,
    Token,
    Why,
    printable,
)

PROTOCOL_VERSION = 10


class Hello(Fields, frozen=True):
    """The first message of each side: its identity, and what must agree for a connection.

    `nonce` is 16 fresh random bytes, `vocabulary` the number of tokens, `clock_ms` the sender's
    wall clock in milliseconds since 1970 (0: unknown). `tokenizer` and `weights` are hashes. An
    interrupted answer resumes only at a cloud of the same `weights`; in mode `sprinter` they select
    the verifier of drafts. `version`, `tokenizer` and `vocabulary` must be equal on both sides, and
    `role` must differ. `software` and `model` are for people.
    """

    TYPE: ClassVar[int] = 0
    version: Annotated[int, Meta(ge=1, le=MAX_32)]
    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    role: Role
    tokenizer: Name
    vocabulary: Annotated[int, Meta(ge=1, le=MAX_TOKEN)]
    model: Annotated[str, printable(MAX_MODEL_NAME)]
    software: Name
    weights: Name = "unknown"
    clock_ms: Time = 0


class Authenticate(Fields, frozen=True):
    """The answer to a Hello: a proof that the sender has the shared key (see `connection`)."""

    TYPE: ClassVar[int] = 1
    proof: Annotated[bytes, Meta(min_length=PROOF_BYTES, max_length=PROOF_BYTES)]


class Ping(Fields, frozen=True):
    """A probe, answered by a Pong: keep-alive, round trip and, with `padding`, bandwidth."""

    TYPE: ClassVar[int] = 2
    sequence: U32
    time_us: Time
    padding: Annotated[bytes, Meta(max_length=MAX_PADDING)] = b""


class Pong(Fields, frozen=True):
    """The echo of a Ping: its sequence and time; `received` is the Ping's size in bytes."""

    TYPE: ClassVar[int] = 3
    sequence: U32
    time_us: Time
    received: U32


class Goodbye(Fields, frozen=True):
    """The end of the connection and all its sessions, and why. Nothing may follow it."""

    TYPE: ClassVar[int] = 4
    reason: Why
    text: Line = ""

    def __post_init__(self) -> None:
        self.clean("text")


class SessionMessage(Fields, frozen=True):
    """Base of all messages of a session; `session` is its number on the connection."""

    TYPE: ClassVar[int]
    session: U32

    def listed(self) -> Sequence[int]:
        """Return all token ids in the message, () if none: the receiver checks their range."""
        return ()


class Open(SessionMessage, frozen=True):
    """Opens a session: asks the other side to take part in an answer, with its own documents.

    `question` has a Question's fields, `settings` those of the `mode`, as (name, value) pairs.
    """

    TYPE: ClassVar[int] = 5
    mode: Name
    question: Packed
    settings: Packed


class Source(Fields, frozen=True):
    """A document that an answer rests on: title, name of its file, relevance to the question.

    `bits` is log2 of how much likelier it made the answer; `sentence` shares most words with it.
    """

    title: Line
    name: Line
    relevance: Finite
    bits: Finite = 0.0
    sentence: Line = ""

    def __post_init__(self) -> None:
        self.clean("title", "name", "sentence")


_Code: TypeAlias = Annotated[str, Meta(max_length=MAX_CODE)]
_Number: TypeAlias = Annotated[str, printable(MAX_CODE)]


class Attribution(Fields, frozen=True):
    """The sources of an answer among the sender's documents.

    `missing` has the answer's numbers and codes ("E-42") that are in none of the documents read.
    `differing` alternates: a number of the answer, then the documents' other number for it.
    """

    sources: Annotated[tuple[Source, ...], Meta(max_length=MAX_DOCUMENTS)] = ()
    missing: Annotated[tuple[_Code, ...], Meta(max_length=MAX_MISSING)] = ()
    differing: Annotated[tuple[_Number, ...], Meta(max_length=MAX_MISSING)] = ()


class Opened(SessionMessage, frozen=True):
    """The sender has read its documents and begins to decode.

    `evidence` is a fingerprint of the chunks read and their relevances. A resumed answer
    needs the same, or the session is closed. `prompt_tokens` counts the question's tokens.
    """

    TYPE: ClassVar[int] = 6
    prompt_tokens: Token
    load_us: Time
    prefill_us: Time
    evidence: Name = "none"


class Close(SessionMessage, frozen=True):
    """The end of one session, for a `reason`; the connection stays.

    `retry_ms` is after how long to retry if the reason is BUSY (0: unknown). `attribution` answers
    a Conclude if the sender shares its sources.
    """

    TYPE: ClassVar[int] = 9
    reason: Why
    text: Line = ""
    retry_ms: U32 = 0
    attribution: Annotated[Attribution | None, Meta(description="an Attribution")] = None

    def __post_init__(self) -> None:
        self.clean("text")


class Conclude(SessionMessage, frozen=True):
    """The answer is complete: the device requests a Close with an Attribution."""

    TYPE: ClassVar[int] = 17


class Working(SessionMessage, frozen=True):
    """The sender is still reading its documents for a session; sent repeatedly."""

    TYPE: ClassVar[int] = 13


ConnectionMessage: TypeAlias = Hello | Authenticate | Ping | Pong | Goodbye
Message: TypeAlias = ConnectionMessage | SessionMessage

CONNECTION_MESSAGES: tuple[type[ConnectionMessage], ...] = get_args(ConnectionMessage)
SESSION_MESSAGES: list[type[SessionMessage]] = [Open, Working, Opened, Conclude, Close]
"""Those of every mode, and behind them those that modes registered (`registry`)."""
