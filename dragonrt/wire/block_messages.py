"""Messages of sessions in which one side drafts blocks and the other verifies them (SPEC 2 - 4)."""

from dataclasses import dataclass
from typing import ClassVar

from dragonrt.wire.fields import (
    LARGEST_FLOAT,
    check_bytes,
    check_integer,
    check_number,
    check_tokens,
    check_tuple,
)
from dragonrt.wire.limits import (
    MAX_32,
    MAX_BLOCK,
    MAX_PAYLOAD,
    MAX_RESOLUTION,
    MAX_STEP,
    MAX_TIME_US,
    MAX_TOKEN,
    MAX_UPLOAD,
)
from dragonrt.wire.reasons import MessageError, Reason


@dataclass(frozen=True, slots=True)
class Block:
    """`count` drafted tokens from step `step` on, in the bits that the session's codec wrote.

    They follow the text whose hash has the low half `prefix_hash`. `decided` are the tokens before
    `step` that the receiver may not know yet: it cuts its text back to `step - len(decided)` and
    appends them. `resolutions` are the lattice resolutions of the distributions: none where the
    codec has no lattice, one for all tokens, or one for each.
    """

    TYPE: ClassVar[int] = 10
    session: int
    round: int
    step: int
    prefix_hash: int
    count: int
    resolutions: tuple[int, ...]
    decided: tuple[int, ...]
    payload: bytes

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        check_integer("round", self.round, 0, MAX_32)
        check_integer("step", self.step, 0, MAX_STEP)
        check_integer("prefix_hash", self.prefix_hash, 0, MAX_32)
        check_integer("count", self.count, 0, MAX_BLOCK)
        check_tuple("resolutions", self.resolutions, MAX_BLOCK)
        for resolution in self.resolutions:
            check_integer("a resolution", resolution, 1, MAX_RESOLUTION)
        if len(self.resolutions) not in (0, 1, self.count):
            raise MessageError(Reason.MALFORMED, "resolutions must be none, one, or one a token")
        check_tokens("decided", self.decided, MAX_BLOCK)
        if len(self.decided) > self.step:
            raise MessageError(Reason.MALFORMED, "decided must not reach before the first step")
        check_bytes("payload", self.payload, 0, MAX_PAYLOAD)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to the Block of that round: the tokens that stand, and the one that follows them.

    In mode "sprinter" `token` is what the block's one place holds: the token drafted there, where
    `accepted` is 1. `verify_us` is what the forward over the block took.
    """

    TYPE: ClassVar[int] = 11
    session: int
    round: int
    accepted: int
    token: int
    verify_us: int

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        check_integer("round", self.round, 0, MAX_32)
        check_integer("accepted", self.accepted, 0, MAX_BLOCK)
        check_integer("token", self.token, 0, MAX_TOKEN)
        check_integer("verify_us", self.verify_us, 0, MAX_TIME_US)


@dataclass(frozen=True, slots=True)
class Upload:
    """A worker's answer to the Block of that round: its distributions, encoded (SPEC 3).

    One payload for each drafted token and one for what follows them. `relevance` is the
    log-sum-exp of the relevances of the documents that they rest on.
    """

    TYPE: ClassVar[int] = 12
    session: int
    round: int
    relevance: float
    verify_us: int
    payloads: tuple[bytes, ...]

    def __post_init__(self) -> None:
        check_integer("session", self.session, 0, MAX_32)
        check_integer("round", self.round, 0, MAX_32)
        check_number("relevance", self.relevance, -LARGEST_FLOAT, LARGEST_FLOAT)
        check_integer("verify_us", self.verify_us, 0, MAX_TIME_US)
        check_tuple("payloads", self.payloads, MAX_BLOCK + 1)
        size = 0
        for payload in self.payloads:
            check_bytes("a payload", payload, 0, MAX_PAYLOAD)
            size += len(payload)
        if size > MAX_UPLOAD:
            raise MessageError(Reason.MALFORMED, f"payloads must be at most {MAX_UPLOAD} bytes")
