"""The messages: one set of frozen dataclasses, the same in both directions.

The constructor of a message checks its fields and raises MessageError. `encoding` turns it into
bytes and back; TYPE is its code. Integers named `*_us` are microseconds, `step` is the index of the
next answer token (0-based), a token is an integer.
"""

from dataclasses import dataclass
from itertools import pairwise
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
    number,
    octets,
    tuple_of,
    utf8,
)
from dragonrt.wire.reasons import MessageError, Reason
from dragonrt.wire.values import VALUES, Values

PROTOCOL_VERSION = 8

LARGEST_COEFFICIENT = 1e9
"""Of such Coefficients: no side is that slow."""


LARGEST_LOSS = 100.0
"""Of a side's weight in a value, as a logarithm."""


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
_PAYLOAD, _RESOLUTION = octets(0, limits.MAX_PAYLOAD), integer(1, limits.MAX_RESOLUTION)
Payload: TypeAlias = Annotated[bytes, _PAYLOAD]
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
    """A message of the session with that number."""

    TYPE: ClassVar[int]
    session: U32


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
class Draft(SessionMessage):
    """One side's draft of step `step`: token, encoded distribution, relevance (SPEC 1.3).

    `prefix_hash` is of the text before `step`, `relevance` the h of SPEC 1 (log-sum-exp of the
    relevances), `payload` the codec's bytes. `kept` is the logarithm of the share of its weight
    that the sender keeps: below 0 in a value that some of its documents do not hold (SPEC 5). The
    sender has decided the first `step - ahead` tokens; `decided_hash` is the low half of their
    hash. A scheduler uses the times: `decode_us` of the forward (0: none), `time_us` of the
    sending, `echo_us` the receiver's newest time and its hold.
    """

    TYPE: ClassVar[int] = 7
    step: Step
    prefix_hash: Hash
    token: Token
    relevance: Finite
    decode_us: Time
    ahead: Step
    decided_hash: U32
    payload: Payload
    time_us: Time = 0
    echo_us: Time = 0
    kept: Annotated[float, number(-LARGEST_LOSS, 0.0)] = 0

    def __post_init__(self) -> None:
        self.check_fields()
        if self.ahead > self.step:
            raise MessageError(Reason.MALFORMED, "ahead must not reach before the first step")


@dataclass(frozen=True, slots=True)
class Target(SessionMessage):
    """The decided token of `step`, after the prefix of that hash, and who aggregates next.

    The times are those of a Draft. In mode "speculative" it is a token, without times, that the
    cloud decoded while no block waited.
    """

    TYPE: ClassVar[int] = 8
    step: Step
    prefix_hash: Hash
    token: Token
    aggregator: Role
    time_us: Time = 0
    echo_us: Time = 0


@dataclass(frozen=True, slots=True)
class Coefficients(SessionMessage):
    """The sender's expected time for a draft of step t: k_a / k_b · t + k_c seconds (SPEC 1.4).

    Sent once if one side schedules, so that both schedule by the same.
    """

    TYPE: ClassVar[int] = 16
    k_a: Annotated[float, number(-LARGEST_COEFFICIENT, LARGEST_COEFFICIENT)]
    k_b: Annotated[float, number(1.0, LARGEST_COEFFICIENT)]
    k_c: Annotated[float, number(0.0, LARGEST_COEFFICIENT)]


@dataclass(frozen=True, slots=True)
class EntryRequest(SessionMessage):
    """Requests the probabilities of `tokens`, strictly increasing, that a race lacks (SPEC 1.8).

    They are of the other side's Draft of that step and prefix.
    """

    TYPE: ClassVar[int] = 14
    step: Step
    prefix_hash: Hash
    tokens: Annotated[tuple[int, ...], tuple_of(TOKEN, limits.MAX_WANTED)]

    def __post_init__(self) -> None:
        self.check_fields()
        if not self.tokens or any(a >= b for a, b in pairwise(self.tokens)):
            raise MessageError(Reason.MALFORMED, "tokens must be at least one, increasing")


@dataclass(frozen=True, slots=True)
class EntryResponse(SessionMessage):
    """The answer to EntryRequest: the probabilities in the order of its tokens, each as fp64."""

    TYPE: ClassVar[int] = 15
    step: Step
    prefix_hash: Hash
    payload: Annotated[bytes, octets(8, 8 * limits.MAX_WANTED)]


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


@dataclass(frozen=True, slots=True)
class Block(SessionMessage):
    """`count` drafted tokens from step `step` on, encoded by the session's codec (SPEC 2 - 4).

    They follow the text whose hash has the low half `prefix_hash`. `decided` are the tokens before
    `step` that the receiver may lack: it truncates its text to `step - len(decided)` and appends
    them. `resolutions` are those of the lattice: none without a lattice, one for all tokens, or one
    each.
    """

    TYPE: ClassVar[int] = 10
    round: U32
    step: Step
    prefix_hash: U32
    count: Annotated[int, integer(0, limits.MAX_BLOCK)]
    resolutions: Annotated[tuple[int, ...], tuple_of(_RESOLUTION, limits.MAX_BLOCK)]
    decided: Annotated[tuple[int, ...], tuple_of(TOKEN, limits.MAX_BLOCK)]
    payload: Payload

    def __post_init__(self) -> None:
        self.check_fields()
        if len(self.resolutions) not in (0, 1, self.count):
            raise MessageError(Reason.MALFORMED, "resolutions must be none, one, or one a token")
        if len(self.decided) > self.step:
            raise MessageError(Reason.MALFORMED, "decided must not reach before the first step")


@dataclass(frozen=True, slots=True)
class Verdict(SessionMessage):
    """The answer to the Block of that round: accepted tokens, and the token that follows them.

    In mode "sprinter" `token` is that of the block's one place: the drafted one if `accepted` is 1.
    `verify_us` is the time of the forward over the block.
    """

    TYPE: ClassVar[int] = 11
    round: U32
    accepted: Annotated[int, integer(0, limits.MAX_BLOCK)]
    token: Token
    verify_us: Time


@dataclass(frozen=True, slots=True)
class Upload(SessionMessage):
    """A worker's answer to the Block of that round: its encoded distributions (SPEC 3).

    There is one payload per drafted token and one for the token after them. `relevance` is the
    log-sum-exp of the relevances of the worker's documents.
    """

    TYPE: ClassVar[int] = 12
    round: U32
    relevance: Finite
    verify_us: Time
    payloads: Annotated[tuple[bytes, ...], tuple_of(_PAYLOAD, limits.MAX_BLOCK + 1)]

    def __post_init__(self) -> None:
        self.check_fields()
        if sum(map(len, self.payloads)) > limits.MAX_UPLOAD:
            raise MessageError(
                Reason.MALFORMED, f"payloads must be at most {limits.MAX_UPLOAD} bytes"
            )


ConnectionMessage: TypeAlias = Hello | Authenticate | Ping | Pong | Goodbye
Message: TypeAlias = ConnectionMessage | SessionMessage

CONNECTION_MESSAGES: tuple[type[ConnectionMessage], ...] = get_args(ConnectionMessage)
SESSION_MESSAGES: tuple[type[SessionMessage], ...] = (
    *(Open, Working, Opened, Draft, Target, EntryRequest, EntryResponse),
    *(Coefficients, Conclude, Close, Block, Verdict, Upload),
)
