"""A controller's state and action, and two baselines (SPEC 2, "Adaptive control"; QSV IV).

It chooses at each block's first token, after the draft model's forward and before sampling. It is a
pure function of the state, so there is nothing to roll back.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from typing_extensions import override

from dragonrt.errors import ControlError


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
    """The state before a block is drafted.

    Attributes:
        confidences: the probability that the draft model, after the sampler and before the codec,
            gave to each of the newest tokens with a distribution, newest last. It excludes the
            token after a wholly accepted block.
        next_confidence: the draft model's largest probability for the block's first token, before
            the sampler. That token is drafted in any case.
        rate: the uplink's in bit/s now, infinite if nothing limits it.
        accepted, drafted: of the block before, up to its first rejected token; 0 before the first.
    """

    confidences: tuple[float, ...]
    next_confidence: float
    rate: float
    accepted: int
    drafted: int


class Controller(ABC):
    """A policy that chooses each block's length L and resolution ℓ."""

    @abstractmethod
    def choose(self, state: ControlState) -> Action: ...


@dataclass(frozen=True, slots=True)
class Static(Controller):
    """Always the same action."""

    action: Action

    @override
    def choose(self, state: ControlState) -> Action:
        return self.action


@dataclass(frozen=True, slots=True)
class Heuristic(Controller):
    """One token more after a wholly accepted block, else the number of accepted ones (QSV V-A)."""

    resolution: int

    def __post_init__(self) -> None:
        Action(1, self.resolution)

    @override
    def choose(self, state: ControlState) -> Action:
        if state.drafted == 0:
            length = 4  # before the first verdict
        elif state.accepted == state.drafted:
            length = state.drafted + 1
        else:
            length = max(1, state.accepted)
        return Action(length, self.resolution)
