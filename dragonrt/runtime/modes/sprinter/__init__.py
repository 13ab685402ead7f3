"""Approximate verification (SPEC 4; SPRINTER): a trained verifier stands in for the cloud's model.

The device shows what its verifier lets pass, and asks the cloud about the first token that it does
not. Fewer calls of the large model, but **the text is not exactly the cloud model's**: it follows a
mixture of both models (Theorem 1). It is the one mode of which that is true.

Verifiers are trained where both models read the same text. Of what only the cloud's documents say
they know nothing: a device that has no document for a question may never ask the cloud about it.
"""

from dragonrt.runtime.modes.sprinter.asking import beginning
from dragonrt.runtime.modes.sprinter.counts import SprinterCounts
from dragonrt.runtime.modes.sprinter.drafting import SprinterDrafting, TokenVerifier
from dragonrt.runtime.modes.sprinter.plan import CODEC, RUN_LENGTH, SprinterPlan
from dragonrt.runtime.modes.sprinter.verifying import SprinterVerifying

__all__ = [
    "CODEC",
    "RUN_LENGTH",
    "SprinterCounts",
    "SprinterDrafting",
    "SprinterPlan",
    "SprinterVerifying",
    "TokenVerifier",
    "beginning",
]
