"""The messages: one set of frozen dataclasses, the same in both directions.

A message checks its own fields when it is made, whoever makes it, and raises MessageError.
`encoding` turns it into bytes and back; its TYPE is its code there. Integers named `*_us` are
microseconds, `step` is the index of the next answer token (0-based), a token is an integer.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from dragonrt.wire.errors import MessageError, Reason
from dragonrt.wire.fields import (
    LARGEST_FLOAT,
    check_bytes,
    check_flag,
    check_integer,
    check_name,
    check_number,
    check_text,
    check_tuple,
    one_line,
    text_size,
)

__all__ = [
    "CONNECTION_MESSAGES",
    "PROTOCOL_VERSION",
    "SESSION_MESSAGES",
    "Authenticate",
    "Close",
    "ConnectionMessage",
    "Draft",
    "Goodbye",
    "Hello",
    "Message",
    "Open",
    "Opened",
    "Ping",
    "Pong",
    "Reason",
    "SessionMessage",
    "Side",
    "Source",
    "Target",
]

Side: TypeAlias = Literal["device", "cloud"]

PROTOCOL_VERSION = 1
NONCE_BYTES = 16
PROOF_BYTES = 32
MAX_NAME = 128
MAX_MODEL_NAME = 512
MAX_PROMPT = 64 * 1024
MAX_CONVERSATION = 1024 * 1024
MAX_TURNS = 64
MAX_TOKENS = 65536
MAX_STEP = 2 * MAX_TOKENS  # a side may draft beyond the last token, but not without end
MAX_TOKEN = 2**31 - 1
MAX_STOP_TOKENS = 256
MAX_DOCUMENTS = 256
MAX_RUN_AHEAD = 4096
MAX_PAYLOAD = 2 * 1024 * 1024
MAX_PADDING = 1024 * 1024
MAX_32 = 2**32 - 1
MAX_64 = 2**64 - 1
MAX_TIME_US = 2**63 - 1


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
    `software` and `model` are for people and need not agree.
    """

    TYPE: ClassVar[int] = 0
    version: int
    nonce: bytes
    role: Side
    tokenizer: str
    vocabulary: int
    model: str
    software: str
    mode: str

    def __post_init__(self) -> None:
        check_integer("version", self.version, 1, MAX_32)
        check_bytes("nonce", self.nonce, NONCE_BYTES, NONCE_BYTES)
        _check_side("role", self.role)
        check_name("tokenizer", self.tokenizer, MAX_NAME)
        check_integer("vocabulary", self.vocabulary, 1, MAX_TOKEN)
        check_name("model", self.model, MAX_MODEL_NAME)
        check_name("software", self.software, MAX_NAME)
        check_name("mode", self.mode, MAX_NAME)


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
    """Asks the other side to work on a question with its own documents.

    `history` holds earlier (question, answer) turns; `documents` is how many of its documents the
    other side should use; their relevances are divided by `relevance_temperature` and estimated
    again every `reweight_every` tokens (0: never). `follow` allows a side to draft along the
    other's line. `accepted` are the tokens already decided, when a session is resumed. `codec`,
    `rule` and `aggregator` are the names those packages use.
    """

    TYPE: ClassVar[int] = 5
    session: int
    prompt: str
    history: tuple[tuple[str, str], ...]
    seed: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    max_tokens: int
    stop_tokens: tuple[int, ...]
    rule: str
    aggregator: str
    codec: str
    run_ahead: int
    documents: int
    relevance_temperature: float
    reweight_every: int
    follow: bool
    accepted: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        check_text("prompt", self.prompt, MAX_PROMPT)
        self._check_history()
        check_integer("seed", self.seed, 0, MAX_64)
        check_number("temperature", self.temperature, 0, 100)
        check_integer("top_k", self.top_k, 0, MAX_TOKEN)
        check_number("top_p", self.top_p, 0, 1)
        check_number("min_p", self.min_p, 0, 1)
        check_integer("max_tokens", self.max_tokens, 1, MAX_TOKENS)
        check_tuple("stop_tokens", self.stop_tokens, MAX_STOP_TOKENS)
        for token in self.stop_tokens:
            check_integer("a stop token", token, 0, MAX_TOKEN)
        check_name("rule", self.rule, MAX_NAME)
        check_name("aggregator", self.aggregator, MAX_NAME)
        check_name("codec", self.codec, MAX_NAME)
        check_integer("run_ahead", self.run_ahead, 1, MAX_RUN_AHEAD)
        check_integer("documents", self.documents, 0, MAX_DOCUMENTS)
        check_number("relevance_temperature", self.relevance_temperature, 1e-9, 1e9)
        check_integer("reweight_every", self.reweight_every, 0, MAX_TOKENS)
        check_flag("follow", self.follow)
        check_tuple("accepted", self.accepted, MAX_TOKENS)
        for token in self.accepted:
            check_integer("an accepted token", token, 0, MAX_TOKEN)

    def _check_history(self) -> None:
        check_tuple("history", self.history, MAX_TURNS)
        size = 0
        for turn in self.history:
            check_tuple("a turn of the history", turn, 2)
            if len(turn) != 2:
                raise MessageError(
                    Reason.MALFORMED, "a turn of the history must be a question and its answer"
                )
            for text in turn:
                check_text("a text of the history", text, MAX_PROMPT)
                size += text_size("a text of the history", text)
        if size > MAX_CONVERSATION:
            raise MessageError(
                Reason.MALFORMED, f"the history must be at most {MAX_CONVERSATION} bytes"
            )


@dataclass(frozen=True, slots=True)
class Source:
    """What may be said of a document: a title, the name of its file, and its relevance."""

    title: str
    name: str
    relevance: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", one_line("title", self.title))
        object.__setattr__(self, "name", one_line("name", self.name))
        check_number("relevance", self.relevance, -LARGEST_FLOAT, LARGEST_FLOAT)


@dataclass(frozen=True, slots=True)
class Opened:
    """The other side has its documents and is decoding: what it uses and what starting took."""

    TYPE: ClassVar[int] = 6
    session: int
    sources: tuple[Source, ...]
    prompt_tokens: int
    load_us: int
    prefill_us: int

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        check_tuple("sources", self.sources, MAX_DOCUMENTS)
        for source in self.sources:
            if type(source) is not Source:
                raise MessageError(Reason.MALFORMED, "sources must hold Source entries only")
        check_integer("prompt_tokens", self.prompt_tokens, 0, MAX_TOKEN)
        check_integer("load_us", self.load_us, 0, MAX_TIME_US)
        check_integer("prefill_us", self.prefill_us, 0, MAX_TIME_US)


@dataclass(frozen=True, slots=True)
class Draft:
    """One side's guess at step `step`: token, encoded distribution, relevance (SPEC 1.3).

    `prefix_hash` names the text the distribution is conditioned on, `relevance` is the h of
    SPEC 1 (log-sum-exp of the relevances), `payload` what the session's codec wrote. The sender
    has decided the first `step - ahead` tokens; `decided_hash` is the low half of their hash.
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


@dataclass(frozen=True, slots=True)
class Target:
    """The decided token of `step`, after the prefix of that hash, and who aggregates next."""

    TYPE: ClassVar[int] = 8
    session: int
    step: int
    prefix_hash: int
    token: int
    aggregator: Side

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        check_integer("step", self.step, 0, MAX_STEP)
        check_integer("prefix_hash", self.prefix_hash, 0, MAX_64)
        check_integer("token", self.token, 0, MAX_TOKEN)
        _check_side("aggregator", self.aggregator)


@dataclass(frozen=True, slots=True)
class Close:
    """The end of one session, as wished or for a fault; the connection lives on."""

    TYPE: ClassVar[int] = 9
    session: int
    reason: Reason
    text: str = ""

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        object.__setattr__(self, "reason", _reason(self.reason))
        object.__setattr__(self, "text", one_line("text", self.text))


ConnectionMessage: TypeAlias = Hello | Authenticate | Ping | Pong | Goodbye
SessionMessage: TypeAlias = Open | Opened | Draft | Target | Close
Message: TypeAlias = ConnectionMessage | SessionMessage

CONNECTION_MESSAGES: tuple[type[ConnectionMessage], ...] = (
    Hello,
    Authenticate,
    Ping,
    Pong,
    Goodbye,
)
SESSION_MESSAGES: tuple[type[SessionMessage], ...] = (Open, Opened, Draft, Target, Close)
