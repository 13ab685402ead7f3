"""What a block of drafted tokens holds, and how a mode answers it (SPEC 2 - 4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dragonrt.distributions import Distribution
from dragonrt.modes.mode import Prediction
from dragonrt.sampling.verification import VerifyResult
from dragonrt.wire import messages as wire


@dataclass(frozen=True, slots=True)
class ReadBlock:
    """A block as it was decoded: the tokens drafted from step `step` on.

    `q` are the distributions that they were drafted from, where those travel.
    """

    step: int
    tokens: list[int]
    q: Sequence[Distribution] | None


@dataclass(frozen=True, slots=True)
class VerifyOne:
    """The verdict on a block of one token: `token` is at its place, the draft if it is accepted.

    `accepted` is 0 or 1. Nothing follows, unlike behind a VerifyResult.
    """

    accepted: int
    token: int


@dataclass(frozen=True, slots=True)
class Uploads:
    """Distributions as an answer: an encoded one for each drafted token, and one more.

    `relevance` is the log-sum-exp of the relevances of the documents that they rest on.
    """

    relevance: float
    payloads: tuple[bytes, ...]


def tokens_of(block: ReadBlock, answer: VerifyResult | VerifyOne | Uploads) -> Sequence[int]:
    """Return the tokens from the block's step on; of Uploads as they were drafted."""
    match answer:
        case VerifyOne():
            return [answer.token]
        case VerifyResult():
            return [*block.tokens[: answer.accepted], answer.token]
        case Uploads():
            return block.tokens


class Judging(Protocol):
    """How a mode reads blocks and what it answers: pure heads, run beside the loop."""

    def read(self, block: wire.Block) -> ReadBlock:
        """The content of a block. Raises DragonError for one that cannot be read."""
        ...

    def answer(
        self, block: ReadBlock, said: Sequence[Prediction]
    ) -> VerifyResult | VerifyOne | Uploads:
        """The answer, given what the model says after the prefixes from the block's step on.

        With a VerifyResult the text goes on with the tokens that it lets stand and with its token,
        with an VerifyOne by its token; with Uploads with what the next block says was decided.
        """
        ...
