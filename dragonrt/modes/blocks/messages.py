"""The messages of the modes in which blocks are drafted."""

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta
from typing_extensions import override

from dragonrt.distributions.codec import Ids
from dragonrt.modes.messages import message
from dragonrt.privacy.disclosure import Crossing
from dragonrt.wire.fields import (
    MAX_BLOCK,
    MAX_RESOLUTION,
    MAX_UPLOAD,
    U32,
    Finite,
    Payload,
    Step,
    Time,
    Token,
)
from dragonrt.wire.messages import SessionMessage
from dragonrt.wire.reasons import MessageError, Reason

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
    them. `resolutions` are those of the lattice: none without a lattice, one for all tokens, or one
    each.
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
    """The answer to the Block of that round: accepted tokens, and the token that follows them.

    In mode "sprinter" `token` is that of the block's one place: the drafted one if `accepted` is 1.
    `verify_us` is the time of the forward over the block.
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
    """A worker's answer to the Block of that round: its encoded distributions (SPEC 3).

    There is one payload per drafted token and one for the token after them. `relevance` is the
    log-sum-exp of the relevances of the worker's documents.
    """

    round: U32
    relevance: Finite
    verify_us: Time
    payloads: Annotated[tuple[Payload, ...], Meta(max_length=MAX_BLOCK + 1)]

    def __post_init__(self) -> None:
        if sum(map(len, self.payloads)) > MAX_UPLOAD:
            raise MessageError(Reason.MALFORMED, f"payloads must be at most {MAX_UPLOAD} bytes")
