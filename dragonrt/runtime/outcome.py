"""What comes out of an answer: decisions one by one, why it ended, what happened on the way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, Self, TypeVar

from dragonrt.sampling.samplers import Sampler
from dragonrt.wire.messages import Source

Turn = tuple[str, str]
"""An earlier question and its answer."""


class Finish(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Decision:
    """One target token.

    `device_share` is the part of the token's probability that came from the device's documents;
    where one side drafts and another verifies, 1 for a draft that stands and 0 for the verifier's
    token. `document` is the own row that carried it (None where the own draft was another token).
    """

    step: int
    token: int
    time_s: float
    device_share: float
    document: int | None


class AnswerPlan(Protocol):
    """What every mode's plan has; `settings` is what a reader of the answer wants to know of it."""

    @property
    def seed(self) -> int: ...
    @property
    def sampler(self) -> Sampler: ...
    @property
    def stop_tokens(self) -> tuple[int, ...]: ...

    def for_answer(self, seed: int, stop_tokens: tuple[int, ...]) -> Self:
        """This plan with the seed and the stop tokens of one answer."""
        ...

    def settings(self) -> dict[str, Any]: ...


class AnswerCounts(Protocol):
    """What every mode counts on the way; `acceptance` in the statistics is a share by name."""

    def statistics(self) -> dict[str, Any]: ...


@dataclass(slots=True, kw_only=True)
class Answer:
    """What the device knows when an answer is complete. Times are seconds on its loop's clock."""

    plan: AnswerPlan
    counts: AnswerCounts
    decisions: list[Decision] = field(default_factory=list)
    finish: Finish = Finish.CANCELLED
    device_sources: tuple[Source, ...] = ()
    cloud_sources: tuple[Source, ...] = ()
    notices: list[str] = field(default_factory=list)
    asked_s: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    rtt_s: float = 0.0

    @property
    def tokens(self) -> list[int]:
        """The answer's tokens, the stop token included."""
        return [decision.token for decision in self.decisions]


A = TypeVar("A", bound=Answer, covariant=True)


class Asking(Protocol[A]):
    """The device's side of one answer, whatever the mode."""

    async def ask(self, question: str, history: Sequence[Turn] = ()) -> A:
        """Answer one question; DragonError if this side cannot."""
        ...

    def stop(self, reason: Finish = Finish.CANCELLED) -> None:
        """End the answer with the tokens decided so far."""
        ...


OnDecision = Callable[[Decision], None]
OnNotice = Callable[[str], None]


def share(part: int, whole: int) -> float | None:
    """A rate for people; None where there was nothing to measure."""
    return round(part / whole, 4) if whole else None
