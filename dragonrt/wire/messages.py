"""The messages: one set of frozen dataclasses, the same in both directions.

A message checks its own fields when it is made, whoever makes it, and raises MessageError.
`encoding` turns it into bytes and back; its TYPE is its code there. Integers named `*_us` are
microseconds, `step` is the index of the next answer token (0-based), a token is an integer.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

from dragonrt.side import Side
from dragonrt.wire.block_messages import Block, Upload, Verdict
from dragonrt.wire.fields import (
    LARGEST_FLOAT,
    check_bytes,
    check_integer,
    check_name,
    check_number,
    check_text,
    check_tokens,
    check_tuple,
    one_line,
)
from dragonrt.wire.limits import (
    MAX_32,
    MAX_64,
    MAX_CODE,
    MAX_DOCUMENTS,
    MAX_MISSING,
    MAX_MODEL_NAME,
    MAX_NAME,
    MAX_PADDING,
    MAX_PAYLOAD,
    MAX_STEP,
    MAX_TIME_US,
    MAX_TOKEN,
    MAX_WANTED,
    NONCE_BYTES,
    PROOF_BYTES,
)
from dragonrt.wire.reasons import MessageError, Reason
from dragonrt.wire.values import Values, check_values

__all__ = [
    "CONNECTION_MESSAGES",
    "PROTOCOL_VERSION",
    "SESSION_MESSAGES",
    "Attribution",
    "Authenticate",
    "Block",
    "Close",
    "Coefficients",
    "Conclude",
    "ConnectionMessage",
    "Draft",
    "EntryRequest",
    "EntryResponse",
    "Goodbye",
    "Hello",
    "Message",
    "Open",
    "Opened",
    "Ping",
    "Pong",
    "Reason",
    "SessionMessage",
    "Source",
    "Target",
    "Upload",
    "Verdict",
    "Working",
]


PROTOCOL_VERSION = 7

LARGEST_COEFFICIENT = 1e9
"""Of such Coefficients: no side is that slow."""


def _check_side(name: str, value: Any) -> None:
    if value not in ("device", "cloud"):
        raise MessageError(Reason.MALFORMED, f"{name} must be 'device' or 'cloud'")


def _reason(value: Any) -> Reason:
    """A code this version does not know must still be read: it may say that versions differ."""
    if not isinstance(value, str):
        raise MessageError(Reason.MALFORMED, "reason must be text")
    try:
        return Reason(value)
    except ValueError:
        return Reason.ERROR


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of each side: who speaks, and what must agree for both to work together.

    `nonce` is 16 fresh random bytes; `tokenizer` a fingerprint; `vocabulary` the number of tokens;
    `software` and `model` are for people and need not agree; nor need `weights`, the model's
    fingerprint, by which a side knows what was trained for that model, nor `clock_ms`, the sender's
    wall clock in milliseconds since 1970 (0: not told). `corpus` is a cloud's: equal where
    documents and the way they are found are, so that an answer may go on there. Each session says
    how it works.
    """

    TYPE: ClassVar[int] = 0
    version: int
    nonce: bytes
    role: Side
    tokenizer: str
    vocabulary: int
    model: str
    software: str
    weights: str = "unknown"
    corpus: str = "unknown"
    clock_ms: int = 0

    def __post_init__(self) -> None:
        check_integer("version", self.version, 1, MAX_32)
        check_bytes("nonce", self.nonce, NONCE_BYTES, NONCE_BYTES)
        _check_side("role", self.role)
        check_name("tokenizer", self.tokenizer, MAX_NAME)
        check_integer("vocabulary", self.vocabulary, 1, MAX_TOKEN)
        check_name("model", self.model, MAX_MODEL_NAME)
        check_name("software", self.software, MAX_NAME)
        check_name("weights", self.weights, MAX_NAME)
        check_name("corpus", self.corpus, MAX_NAME)
        check_integer("clock_ms", self.clock_ms, 0, MAX_TIME_US)


@dataclass(frozen=True, slots=True)
class Authenticate:
    """The answer to a Hello: proof that this side has the shared key (see `connection`)."""

    TYPE: ClassVar[int] = 1
    proof: bytes

    def __post_init__(self) -> None:
        check_bytes("proof", self.proof, PROOF_BYTES, PROOF_BYTES)


@dataclass(frozen=True, slots=True)
class Ping:
    """A probe: keep-alive, round-trip time, and with padding a part of a timed burst."""

    TYPE: ClassVar[int] = 2
    sequence: int
    time_us: int
    padding: bytes = b""

    def __post_init__(self) -> None:
        check_integer("sequence", self.sequence, 0, MAX_32)
        check_integer("time_us", self.time_us, 0, MAX_TIME_US)
        check_bytes("padding", self.padding, 0, MAX_PADDING)


@dataclass(frozen=True, slots=True)
class Pong:
    """The echo of a Ping: its sequence and time, and the bytes its frame had on arrival."""

    TYPE: ClassVar[int] = 3
    sequence: int
    time_us: int
    received: int

    def __post_init__(self) -> None:
        check_integer("sequence", self.sequence, 0, MAX_32)
        check_integer("time_us", self.time_us, 0, MAX_TIME_US)
        check_integer("received", self.received, 0, MAX_32)


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The end of the connection and of all its sessions, and why. Nothing may follow it."""

    TYPE: ClassVar[int] = 4
    reason: Reason
    text: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", _reason(self.reason))
        object.__setattr__(self, "text", one_line("text", self.text))


@dataclass(frozen=True, slots=True)
class Open:
    """Asks the other side to work on a question with its own documents, in the mode of that name.

    `question` and `settings` are the fields of the classes of those names that travel, packed by
    `values`: a mode's package says which there are.
    """

    TYPE: ClassVar[int] = 5
    session: int
    mode: str
    question: Values
    settings: Values

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        check_name("mode", self.mode, MAX_NAME)
        check_values("question", self.question)
        check_values("settings", self.settings)


@dataclass(frozen=True, slots=True)
class Source:
    """A document that the answer rests on: title, name of its file, relevance to the question.

    `bits` is the leave-one-out evidence of the answer's tokens. `sentence` is the sentence of the
    document that carries the answer.
    """

    title: str
    name: str
    relevance: float
    bits: float = 0.0
    sentence: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", one_line("title", self.title))
        object.__setattr__(self, "name", one_line("name", self.name))
        check_number("relevance", self.relevance, -LARGEST_FLOAT, LARGEST_FLOAT)
        check_number("bits", self.bits, -LARGEST_FLOAT, LARGEST_FLOAT)
        object.__setattr__(self, "sentence", one_line("sentence", self.sentence))


@dataclass(frozen=True, slots=True)
class Attribution:
    """What the answer owes to the sender's documents, as far as the sender knows the answer.

    `missing` are the numbers and codes of the answer that stand in none of the documents read.
    """

    sources: tuple[Source, ...] = ()
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_tuple("sources", self.sources, MAX_DOCUMENTS)
        for source in self.sources:
            if type(source) is not Source:
                raise MessageError(Reason.MALFORMED, "sources must hold Source entries only")
        check_tuple("missing", self.missing, MAX_MISSING)
        for code in self.missing:
            check_text("missing", code, MAX_CODE)


@dataclass(frozen=True, slots=True)
class Opened:
    """The other side has its documents and is decoding: what starting took.

    `evidence` names the chunks of documents that it reads and their relevances. An answer goes on
    only from what it began with: a session that resumes it and has another is closed.
    """

    TYPE: ClassVar[int] = 6
    session: int
    prompt_tokens: int
    load_us: int
    prefill_us: int
    evidence: str = "none"

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        check_integer("prompt_tokens", self.prompt_tokens, 0, MAX_TOKEN)
        check_integer("load_us", self.load_us, 0, MAX_TIME_US)
        check_integer("prefill_us", self.prefill_us, 0, MAX_TIME_US)
        check_name("evidence", self.evidence, MAX_NAME)


@dataclass(frozen=True, slots=True)
class Draft:
    """One side's guess at step `step`: token, encoded distribution, relevance (SPEC 1.3).

    `prefix_hash` names the text the distribution is conditioned on, `relevance` is the h of
    SPEC 1 (log-sum-exp of the relevances), `payload` what the session's codec wrote. The sender
    has decided the first `step - ahead` tokens; `decided_hash` is the low half of their hash.
    Where a scheduler needs them there are times: `decode_us`, what the forward took, 0 if it needed
    none of its own; `time_us`, when this was sent, and `echo_us`, the receiver's newest such time
    and how long it was held since (`control.round_trip`).
    """

    TYPE: ClassVar[int] = 7
    session: int
    step: int
    prefix_hash: int
    token: int
    relevance: float
    decode_us: int
    ahead: int
    decided_hash: int
    payload: bytes
    time_us: int = 0
    echo_us: int = 0

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        check_integer("step", self.step, 0, MAX_STEP)
        check_integer("prefix_hash", self.prefix_hash, 0, MAX_64)
        check_integer("token", self.token, 0, MAX_TOKEN)
        check_number("relevance", self.relevance, -LARGEST_FLOAT, LARGEST_FLOAT)
        check_integer("decode_us", self.decode_us, 0, MAX_TIME_US)
        check_integer("ahead", self.ahead, 0, self.step)
        check_integer("decided_hash", self.decided_hash, 0, MAX_32)
        check_bytes("payload", self.payload, 0, MAX_PAYLOAD)
        check_integer("time_us", self.time_us, 0, MAX_TIME_US)
        check_integer("echo_us", self.echo_us, 0, MAX_TIME_US)


@dataclass(frozen=True, slots=True)
class Target:
    """The decided token of `step`, after the prefix of that hash, and who aggregates next.

    The times are those of a Draft. In mode "speculative" it is a token that the cloud decoded while
    no block waited, without times.
    """

    TYPE: ClassVar[int] = 8
    session: int
    step: int
    prefix_hash: int
    token: int
    aggregator: Side
    time_us: int = 0
    echo_us: int = 0

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        check_integer("step", self.step, 0, MAX_STEP)
        check_integer("prefix_hash", self.prefix_hash, 0, MAX_64)
        check_integer("token", self.token, 0, MAX_TOKEN)
        _check_side("aggregator", self.aggregator)
        check_integer("time_us", self.time_us, 0, MAX_TIME_US)
        check_integer("echo_us", self.echo_us, 0, MAX_TIME_US)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """What the sender expects a draft of step t to take it: k_a / k_b · t + k_c seconds (SPEC 1.4).

    Said once it is ready, where one side schedules, so that both schedule by the same.
    """

    TYPE: ClassVar[int] = 16
    session: int
    k_a: float
    k_b: float
    k_c: float

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        check_number("k_a", self.k_a, -LARGEST_COEFFICIENT, LARGEST_COEFFICIENT)
        check_number("k_b", self.k_b, 1.0, LARGEST_COEFFICIENT)
        check_number("k_c", self.k_c, 0.0, LARGEST_COEFFICIENT)


@dataclass(frozen=True, slots=True)
class EntryRequest:
    """Asks for what a race lacks: the probabilities of `tokens`, strictly increasing (SPEC 1.8).

    They are those of the other side's Draft of that step and prefix.
    """

    TYPE: ClassVar[int] = 14
    session: int
    step: int
    prefix_hash: int
    tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        check_integer("step", self.step, 0, MAX_STEP)
        check_integer("prefix_hash", self.prefix_hash, 0, MAX_64)
        check_tokens("tokens", self.tokens, MAX_WANTED)
        if not self.tokens or any(a >= b for a, b in pairwise(self.tokens)):
            raise MessageError(Reason.MALFORMED, "tokens must be at least one, increasing")


@dataclass(frozen=True, slots=True)
class EntryResponse:
    """The answer to EntryRequest: the probabilities in the order of its tokens, each as fp64."""

    TYPE: ClassVar[int] = 15
    session: int
    step: int
    prefix_hash: int
    payload: bytes

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        check_integer("step", self.step, 0, MAX_STEP)
        check_integer("prefix_hash", self.prefix_hash, 0, MAX_64)
        check_bytes("payload", self.payload, 8, 8 * MAX_WANTED)


@dataclass(frozen=True, slots=True)
class Close:
    """The end of one session, as wished or for a fault; the connection lives on.

    Who is busy says in `retry_ms` when to ask again; 0 says nothing. `attribution` answers a
    Conclude, if the sender shares its sources.
    """

    TYPE: ClassVar[int] = 9
    session: int
    reason: Reason
    text: str = ""
    retry_ms: int = 0
    attribution: Attribution | None = None

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        check_integer("retry_ms", self.retry_ms, 0, MAX_32)
        if type(self.attribution) not in (Attribution, type(None)):
            raise MessageError(Reason.MALFORMED, "attribution must be an Attribution")
        object.__setattr__(self, "reason", _reason(self.reason))
        object.__setattr__(self, "text", one_line("text", self.text))


@dataclass(frozen=True, slots=True)
class Conclude:
    """The answer is complete: asks the other side to end the session with its Attribution."""

    TYPE: ClassVar[int] = 17
    session: int

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)


@dataclass(frozen=True, slots=True)
class Working:
    """The other side took the question and reads it, which may take long: said time and again."""

    TYPE: ClassVar[int] = 13
    session: int

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)


ConnectionMessage: TypeAlias = Hello | Authenticate | Ping | Pong | Goodbye
SessionMessage: TypeAlias = (
    Open
    | Working
    | Opened
    | Draft
    | Target
    | EntryRequest
    | EntryResponse
    | Coefficients
    | Conclude
    | Close
    | Block
    | Verdict
    | Upload
)
Message: TypeAlias = ConnectionMessage | SessionMessage

CONNECTION_MESSAGES: tuple[type[ConnectionMessage], ...] = (
    Hello,
    Authenticate,
    Ping,
    Pong,
    Goodbye,
)
SESSION_MESSAGES: tuple[type[SessionMessage], ...] = (
    Open,
    Working,
    Opened,
    Draft,
    Target,
    EntryRequest,
    EntryResponse,
    Coefficients,
    Conclude,
    Close,
    Block,
    Verdict,
    Upload,
)
