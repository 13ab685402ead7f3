"""What a controller sees and decides, and the two baselines (SPEC 2, "Adaptive control"; QSV IV).

At each block's first token the device asks for the block's length and the resolution of its
distributions: after the draft model's forward, before anything is drawn. A controller is a pure
function of the state, so there is nothing to roll back.
"""

from dataclasses import dataclass
from typing import Protocol

from dragonrt.errors import ControlError

FIRST_LENGTH = 4  # what the heuristic drafts before it has seen a verdict


@dataclass(frozen=True, slots=True)
class Action:
    """Draft `length` tokens (L), their distributions with denominators of `resolution` (ℓ).

    Raises ControlError unless both are at least 1.
    """

    length: int
    resolution: int

    def __post_init__(self) -> None:
        if self.length < 1 or self.resolution < 1:
            raise ControlError("the length and the resolution of a block must be at least 1")


@dataclass(frozen=True, slots=True)
class ControlState:
    """What is known when a block is to be drafted.

    Attributes:
        confidences: the probability that the draft model, after the sampler and before the codec,
            gave to each of the newest tokens that a distribution was drafted for, newest last.
            The token behind a block that was accepted wholly is none of them.
        next_confidence: the draft model's largest probability for the block's first token, before
            the sampler. That token is drafted whatever is decided.
        rate: the uplink's in bit/s now, infinite if nothing limits it.
        accepted, drafted: of the block before, up to its first rejected token; 0 before the first.
    """

    confidences: tuple[float, ...]
    next_confidence: float
    rate: float
    accepted: int
    drafted: int


class Controller(Protocol):
    """A policy over (L, ℓ)."""

    def choose(self, state: ControlState) -> Action:
        """Return the action for the next block."""


@dataclass(frozen=True, slots=True)
class Static:
    """The same action always."""

    action: Action

    def choose(self, state: ControlState) -> Action:
        return self.action


@dataclass(frozen=True, slots=True)
class Heuristic:
    """One token more after a block accepted wholly, else as many as were accepted (QSV V-A)."""

    resolution: int

    def __post_init__(self) -> None:
        Action(1, self.resolution)

    def choose(self, state: ControlState) -> Action:
        if state.drafted == 0:
            length = FIRST_LENGTH
        elif state.accepted == state.drafted:
            length = state.drafted + 1
        else:
            length = max(1, state.accepted)
        return Action(length, self.resolution)
