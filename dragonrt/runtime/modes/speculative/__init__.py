"""Edge-cloud speculative decoding (SPEC 2; QSV, SQS): the device drafts, the cloud verifies.

Exactly the cloud model's distribution comes out, whatever the draft model, the codec and the
lengths of the blocks.
"""

from dragonrt.runtime.modes.speculative.asking import beginning
from dragonrt.runtime.modes.speculative.drafting import SpeculativeDrafting
from dragonrt.runtime.modes.speculative.dropped_mass import DroppedMass, dropped_mass
from dragonrt.runtime.modes.speculative.plan import PIPELINED, WAITING, BlockShape, SpeculativePlan
from dragonrt.runtime.modes.speculative.verifying import SpeculativeVerifying

__all__ = [
    "PIPELINED",
    "WAITING",
    "BlockShape",
    "DroppedMass",
    "SpeculativeDrafting",
    "SpeculativePlan",
    "SpeculativeVerifying",
    "beginning",
    "dropped_mass",
]
