"""The device's part of an answer without I/O: what a mode drafts, sends and decides."""

from dataclasses import dataclass
from typing import Protocol

from dragonrt.runtime.draft import Line
from dragonrt.runtime.modes.blocks.counts import BlockCounts
from dragonrt.runtime.outcome import Finish
from dragonrt.runtime.predictor import NextToken
from dragonrt.wire import messages as wire


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """A block that is ready to be sent; the session adds its numbers.

    `count` drafted tokens follow the text of `step` tokens with `prefix_hash`; `bits` is what the
    papers' formulas count of the payload. The other fields are those of the wire's Block.
    """

    step: int
    prefix_hash: int
    count: int
    payload: bytes
    bits: int
    resolutions: tuple[int, ...] = ()
    decided: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Decided:
    """The next token of the answer.

    `stands` is True for a token that the device drafted, False for one that took the place of a
    refused draft, None for one at whose place nothing was drafted.
    """

    token: int
    stands: bool | None


@dataclass(frozen=True, slots=True)
class Advance:
    """What one prediction or one verdict led to.

    `cut` says that the blocks under way follow another text now: nobody will answer them.
    `thresholds` has (step, β, dropped mass) for every token that C-SQS's threshold moved on.
    """

    decided: tuple[Decided, ...] = ()
    block: EncodedBlock | None = None
    cut: bool = False
    thresholds: tuple[tuple[int, float, float], ...] = ()


class Drafting(Protocol):
    """What one mode does on the device. `line` holds the decided tokens, then the drafted ones."""

    line: Line
    decided: int
    counts: BlockCounts

    @property
    def finish(self) -> Finish | None:
        """Why the answer is complete, or None while it is not."""
        ...

    @property
    def ready(self) -> bool:
        """Whether a prediction of what follows the line is wanted now; otherwise a verdict is."""
        ...

    def draft(self, said: NextToken, rate: float) -> Advance:
        """Go on with what the model says after the line; `rate` is the uplink's in bit/s."""
        ...

    def take(self, verdict: wire.Verdict) -> Advance:
        """The verdict on the oldest block that was sent; BlockError for an impossible one."""
        ...

    def decide_alone(self, said: NextToken) -> Advance:
        """Decide the next token without the cloud; nothing is drafted behind the decided text."""
        ...

    def rewind(self) -> None:
        """The cloud is gone: forget what is drafted and not decided."""
        ...
