"""Models of which it is given whose drafts become target tokens (DRAGON Fig. 3 and 8)."""

from dataclasses import dataclass

import numpy as np

from dragonrt.modes.mode import Prediction
from dragonrt.side import Side
from dragonrt.testing.scripted import SimulatedSaid


@dataclass(frozen=True, slots=True)
class Acceptances:
    """Which drafts become target tokens: one entry per step and side, replayed as they are."""

    device: tuple[bool, ...]
    cloud: tuple[bool, ...]

    def of(self, side: Side) -> tuple[bool, ...]:
        return self.device if side == "device" else self.cloud


ACCEPTANCE_VOCABULARY = 64


@dataclass(frozen=True, slots=True)
class AcceptanceModel:
    """Implements SimulatedModel: a draft is the target if `accepted` says so, else another token.

    Meant for temperature 0 and equal weights. The target after a prefix follows from its hash; a
    side that is to be refused gives it 0.4 and another token of its own 0.6, which loses against
    0.4 twice as it does against 0.4 and 1.
    """

    side: Side
    accepted: tuple[bool, ...]

    def said(self, step: int, prefix_hash: int) -> Prediction:
        target = prefix_hash % ACCEPTANCE_VOCABULARY
        p = np.zeros(ACCEPTANCE_VOCABULARY, dtype=np.float32)
        if self.accepted[step]:
            p[target] = 1.0
        else:
            p[target] = 0.4
            p[(target + (1 if self.side == "device" else 2)) % ACCEPTANCE_VOCABULARY] = 0.6
        return SimulatedSaid(p, 0.0, np.zeros(1, dtype=np.float32))
