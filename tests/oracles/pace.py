"""How much time a decision of a mode may take, for checks that an answer ends."""

from dataclasses import dataclass

from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.wire.fields import MAX_BLOCK


@dataclass(frozen=True, slots=True)
class Pace:
    """Bounds of an answer's time.

    A device drafts at most `ahead` undecided steps. One decision takes so many `forwards` of both
    sides and two trips of messages, one after the other, behind at most `messages` others. One
    message holds at most so many `distributions`.
    """

    ahead: int
    forwards: int
    messages: int
    distributions: int


def pace(settings: Settings) -> Pace:
    """Return what bounds an answer with these settings."""
    match settings:
        case DragonSettings(run_ahead=ahead):
            # A forward on a dead prefix, and one on the decided text; then a Draft and a Target.
            return Pace(ahead, 2, 2 * ahead, 1)
        case FederatedSettings(block_tokens=block):
            # A block, and its verification behind one that came too late.
            return Pace(max(1, block), 3 + block, 4, block + 1)
        case SpeculativeSettings(length=length, outstanding=blocks):
            # What is under way is drafted anew behind a rejection, and verified.
            longest = length if settings.controller is None else MAX_BLOCK
            ahead = max(1, blocks * (longest + 1) - 1)  # alone it decodes, without blocks too
            return Pace(ahead, 2 + length, 2 * blocks, length)
        case _:
            return Pace(1, 3, 2, 1)
