"""Approximate verification without a link, by verifiers whose errors are given (SPRINTER 3.1)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.runtime.generation import LOW_BITS
from dragonrt.runtime.modes.sprinter import (
    SprinterDrafting,
    SprinterPlan,
    SprinterVerifying,
    TokenVerifier,
)
from dragonrt.runtime.predictor import NextToken
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
    """The next token of a text, and whether the target was called for it."""

    token: int
    called: bool


class Lockstep:
    """Both sides of an answer, the device's drafting and the cloud's verifying, token by token."""

    def __init__(self, plan: SprinterPlan, vocabulary: int, verifier: TokenVerifier) -> None:
        self.drafting = SprinterDrafting(plan, vocabulary, verifier)
        self._verifying = SprinterVerifying(plan, vocabulary)

    def next(self, p: NDArray[np.float32], q: NDArray[np.float32]) -> SprintedToken:
        """One token, where the target says `p` [V] and the draft model `q` [V]."""
        advance = self.drafting.draft(NextToken(q, 0.0, p), math.inf)
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
            read = self._verifying.read(sent)
            verdict = self._verifying.answer(read, [NextToken(p, 0.0, p)])
            advance = self.drafting.take(wire.Verdict(1, 1, verdict.accepted, verdict.token, 0))
        return SprintedToken(advance.decided[0].token, block is not None)
