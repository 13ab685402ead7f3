"""Approximate verification without a link, by verifiers whose errors are given (SPRINTER 3.1)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.modes.prefix import LOW_BITS
from dragonrt.modes.question import Question
from dragonrt.modes.registry import Resources, TokenVerifier
from dragonrt.modes.settings import SprinterSettings
from dragonrt.modes.sprinter import SprinterDrafting, SprinterJudging
from dragonrt.testing.scripted import SimulatedSaid
from dragonrt.wire import messages as wire


class KnownRates:
    """A verifier that is told p, in the place of the hidden state, and errs at given rates.

    It lets a token pass with probability `eta_tp` if q(x) ≤ p(x), and `eta_fp` if not.
    """

    threshold = 0.5

    def __init__(self, eta_tp: float, eta_fp: float, seed: int) -> None:
        self._eta_tp = eta_tp
        self._eta_fp = eta_fp
        self._random = np.random.Generator(np.random.Philox(seed))

    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        rate = self._eta_tp if q[token] <= hidden[token] else self._eta_fp
        return float(self._random.random() < rate)


@dataclass(frozen=True, slots=True)
class SprintedToken:
    """The next token of a text; whether the target was called for it, and the draft stands."""

    token: int
    called: bool
    stands: bool


class Lockstep:
    """Both sides of an answer, the device's drafting and the cloud's judging, token by token."""

    def __init__(
        self,
        question: Question,
        settings: SprinterSettings,
        vocabulary: int,
        verifier: TokenVerifier,
    ) -> None:
        resources = Resources(vocabulary=vocabulary, verifier=verifier)
        self.drafting = SprinterDrafting(question, settings, resources)
        self._judging = SprinterJudging(question, settings, resources)

    def next(self, p: NDArray[np.float32], q: NDArray[np.float32]) -> SprintedToken:
        """One token, where the target says `p` [V] and the draft model `q` [V]."""
        drafted = self.drafting.head(math.inf)([SimulatedSaid(q, 0.0, p)])
        advance = self.drafting.take_draft(drafted)
        block = advance.block
        if block is not None:
            sent = wire.Block(
                session=1,
                round=1,
                step=block.step,
                prefix_hash=block.prefix_hash & LOW_BITS,
                count=block.count,
                resolutions=block.resolutions,
                decided=block.decided,
                payload=block.payload,
            )
            read = self._judging.read(sent)
            verdict = self._judging.answer(read, [SimulatedSaid(p, 0.0, p)])
            advance = self.drafting.take_verdict(verdict.accepted, verdict.token)
        decided = advance.decided[0]
        return SprintedToken(decided.token, block is not None, decided.stands is not False)
