"""What comes out of a generation: decisions one by one, why it ended, what happened on the way."""

from dataclasses import dataclass, field
from enum import StrEnum


class Finish(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Decision:
    """One target token.

    `device_share` is the part of the token's probability that came from the device's documents,
    `document` the own row that carried it (None where the own draft was another token).
    """

    step: int
    token: int
    time_s: float
    device_share: float
    document: int | None


@dataclass(slots=True)
class Counts:
    """What happened in one generation, on this side."""

    own_accepted: int = 0
    own_compared: int = 0
    other_accepted: int = 0
    other_compared: int = 0
    forwards: int = 0
    preempted: int = 0
    rollbacks: int = 0
    switches: int = 0
    divergences: int = 0
    alone_from: int | None = None
    waited_s: dict[str, float] = field(default_factory=dict)
