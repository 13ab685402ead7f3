"""The wire messages that modes share, and the decorator that registers a mode's own messages."""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeAlias, TypeVar

from msgspec import Meta
from typing_extensions import override

from dragonrt.distributions.codec import Ids
from dragonrt.privacy.disclosure import RULES, Crossing, Discloses
from dragonrt.settings import U64
from dragonrt.wire import connection, encoding, sessions
from dragonrt.wire.fields import (
    MAX_BLOCK,
    MAX_RESOLUTION,
    MAX_UPLOAD,
    U32,
    Finite,
    Payload,
    Role,
    Step,
    Time,
    Token,
)
from dragonrt.wire.messages import SESSION_MESSAGES, SessionMessage
from dragonrt.wire.reasons import MessageError, Reason

M = TypeVar("M", bound=SessionMessage)


def message(
    code: int, *, discloses: Discloses, early: bool = False
) -> Callable[[type[M]], type[M]]:
    """Return a class decorator that registers a mode's message type under the number `code`.

    `discloses(message, marker)` counts what a message discloses, such as tokens, for the ledger.
    Tokens of `marker`, which replace withheld ones, do not count. An `early` message may be sent
    before the peer has answered the session's opening.
    """

    def registered(kind: type[M]) -> type[M]:
        RULES[kind], kind.TYPE = discloses, code
        SESSION_MESSAGES.append(kind)
        encoding.register(kind)
        sessions.admit(kind, early=early)
        connection.admit(kind)
        return kind

    return registered


@message(8, discloses=lambda message, marker: {"tokens": int(message.token not in marker)})
class Target(SessionMessage, frozen=True):
    """Sends the decided `token` of `step`, after the prefix with hash `prefix_hash`.

    The side `aggregator` decides next. `time_us` and `echo_us` time the round trip (see RoundTrip),
    or are 0. In mode "speculative" the cloud decoded the token while no block awaited a Verdict.
    """

    step: Step
    prefix_hash: U64
    token: Token
    aggregator: Role
    time_us: Time = 0
    echo_us: Time = 0

    @override
    def listed(self) -> Sequence[int]:
        return (self.token,)


_Resolution: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_RESOLUTION)]


def _of_block(message: "Block", marker: Sequence[int]) -> Crossing:
    carries = not message.payload.startswith(Ids.header)
    return {
        "tokens": message.count + len(message.decided),
        "distributions": message.count if carries else 0,
    }


@message(10, early=True, discloses=_of_block)
class Block(SessionMessage, frozen=True):
    """`count` drafted tokens from step `step` on, encoded by the session's codec (SPEC 2 - 4).

    They follow the text whose hash has the low half `prefix_hash`. `decided` are the tokens before
    `step` that the receiver may lack: it truncates its text to `step - len(decided)` and appends
    them. `resolutions` are lattice denominators: none (codec's), one for all drafts, or one each.
    """

    round: U32
    step: Step
    prefix_hash: U32
    count: Annotated[int, Meta(ge=0, le=MAX_BLOCK)]
    resolutions: Annotated[tuple[_Resolution, ...], Meta(max_length=MAX_BLOCK)]
    decided: Annotated[tuple[Token, ...], Meta(max_length=MAX_BLOCK)]
    payload: Payload

    def __post_init__(self) -> None:
        if len(self.resolutions) not in (0, 1, self.count):
            raise MessageError(Reason.MALFORMED, "resolutions must be none, one, or one a token")
        if len(self.decided) > self.step:
            raise MessageError(Reason.MALFORMED, "decided must not reach before the first step")

    @override
    def listed(self) -> Sequence[int]:
        return self.decided


@message(11, discloses=lambda message, marker: {"tokens": 1})
class Verdict(SessionMessage, frozen=True):
    """The cloud's answer to Block number `round`: it accepts `accepted` drafts; `token` follows.

    In mode "sprinter" a block has one draft; `token` is the draft if `accepted` is 1, else new.
    `verify_us` has the microseconds of the block's forward.
    """

    round: U32
    accepted: Annotated[int, Meta(ge=0, le=MAX_BLOCK)]
    token: Token
    verify_us: Time

    @override
    def listed(self) -> Sequence[int]:
        return (self.token,)


@message(12, discloses=lambda message, marker: {"distributions": len(message.payloads)})
class Upload(SessionMessage, frozen=True):
    """A worker's answer to Block number `round`: its encoded distributions (SPEC 3).

    There is one payload per drafted token and one for the token after them. `relevance` is the
    worker's side relevance h̃, `verify_us` the microseconds of the forward over the block.
    """

    round: U32
    relevance: Finite
    verify_us: Time
    payloads: Annotated[tuple[Payload, ...], Meta(max_length=MAX_BLOCK + 1)]

    def __post_init__(self) -> None:
        if sum(map(len, self.payloads)) > MAX_UPLOAD:
            raise MessageError(Reason.MALFORMED, f"payloads must be at most {MAX_UPLOAD} bytes")
