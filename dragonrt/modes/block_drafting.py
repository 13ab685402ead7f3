"""What a mode drafts in blocks, and how it goes on with what the cloud says (SPEC 2, 4)."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from dragonrt.modes.mode import Finish, Head
from dragonrt.modes.prefix import TokenPrefix


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
    distributions: bool = True


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
    `judged` is the number of tokens that a verdict was about; `verdicts` has (tokens, accepted,
    token) for the oldest blocks sent where none was needed. `thresholds` has (step, β, dropped
    mass) for every token that C-SQS's threshold moved on.
    """

    decided: tuple[Decided, ...] = ()
    block: EncodedBlock | None = None
    cut: bool = False
    judged: int = 0
    verdicts: tuple[tuple[int, int, int], ...] = ()
    thresholds: tuple[tuple[int, float, float], ...] = ()


class Drafting(Protocol):
    """What one mode does on the device. `line` holds the decided tokens, then the drafted ones.

    A head computes on what the model says after the line; what it gives is handed to `take_draft`
    or `decide_alone` unless the line has changed meanwhile.
    """

    line: TokenPrefix
    decided: int

    @property
    def finish(self) -> Finish | None:
        """Why the answer is complete, or None while it is not."""
        ...

    @property
    def ready(self) -> bool:
        """Whether a prediction of what follows the line is wanted now; otherwise a verdict is."""
        ...

    def head(self, rate: float) -> Head:
        """What to compute for the next draft; `rate` is the uplink's in bit/s."""
        ...

    def take_draft(self, result: Any) -> Advance:
        """Go on with what `head` gave."""
        ...

    def take_verdict(self, accepted: int, token: int) -> Advance:
        """The verdict on the oldest block that was sent; ModeError for an impossible one."""
        ...

    def head_alone(self) -> Head:
        """What to compute to decide the next token without the cloud."""
        ...

    def decide_alone(self, result: Any) -> Advance:
        """Decide the next token without the cloud; nothing is drafted behind the decided text."""
        ...

    def rewind(self) -> None:
        """The cloud is gone: forget what is drafted and not decided."""
        ...


@runtime_checkable
class TargetFollowing(Protocol):
    """A Drafting of a mode in which the cloud decides tokens by itself, too."""

    def take_target(self, step: int, prefix_hash: int, token: int) -> Advance:
        """Go on with the cloud's token of `step`; ModeError for an impossible one."""
        ...
