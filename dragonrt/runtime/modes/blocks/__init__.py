"""What the modes share in which one side drafts blocks and the other answers them (SPEC 2 - 4).

The asking side's `BlockSession` sends blocks and hears their answers; `BlockAsking` is the device's
part of one answer around a mode's `Drafting`. The answering side's `BlockAnswering` follows the
text, makes one forward over each block and lets the mode's `Verifying` say what it thinks of it.
"""

from dragonrt.runtime.modes.blocks.answering import BlockAnswering
from dragonrt.runtime.modes.blocks.asking import Answer, BlockAsking, OnLoss
from dragonrt.runtime.modes.blocks.counts import BlockCounts
from dragonrt.runtime.modes.blocks.drafting import Advance, Decided, Drafting, EncodedBlock
from dragonrt.runtime.modes.blocks.errors import BlockError
from dragonrt.runtime.modes.blocks.session import MAX_OUTSTANDING, BlockSession
from dragonrt.runtime.modes.blocks.verifying import InPlace, ReadBlock, Uploads, Verifying

__all__ = [
    "MAX_OUTSTANDING",
    "Advance",
    "Answer",
    "BlockAnswering",
    "BlockAsking",
    "BlockCounts",
    "BlockError",
    "BlockSession",
    "Decided",
    "Drafting",
    "EncodedBlock",
    "InPlace",
    "OnLoss",
    "ReadBlock",
    "Uploads",
    "Verifying",
]
