"""A drafted block, and what it leaves to the next one: functions of drafted and decided tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dragonrt.control.policies import ControlState
from dragonrt.distributions import ConformalThreshold, Quantized, backtrack
from dragonrt.modes.settings import SpeculativeSettings
from dragonrt.sampling.stopping import DraftSignals, StoppingRule

REMEMBERED_CONFIDENCES = 32
"""Newest tokens of the answer whose confidences a controller may look at."""


@dataclass(frozen=True, slots=True, eq=False)
class DraftedToken:
    """A drafted token, `q` float64 [V] that the model gave after the sampler, and how it is sent.

    `threshold` is C-SQS's β at this token, if that codec is used.
    """

    token: int
    q: NDArray[np.float64]
    quantized: Quantized
    threshold: ConformalThreshold | None
    drafted: DraftSignals

    @property
    def bits(self) -> int:
        """What the token takes in a block, with its distribution."""
        return self.quantized.bits + self.quantized.token_bits


@dataclass(frozen=True, slots=True)
class Carried:
    """What blocks leave to the block after them: pure functions of the decided tokens.

    `threshold` is C-SQS's β for the next token; `confidences`, `accepted` and `drafted` are those
    of control.State. Nothing may depend on tokens behind a refused one: their noise is used again.
    """

    threshold: ConformalThreshold | None
    stopping: StoppingRule | None
    confidences: tuple[float, ...] = ()
    accepted: int = 0
    drafted: int = 0

    def state(self, next_confidence: float, rate: float) -> ControlState:
        """What a controller sees at the first token of the next block."""
        return ControlState(self.confidences, next_confidence, rate, self.accepted, self.drafted)

    def after(self, block: DraftedBlock, accepted: int, token: int) -> Carried:
        """What `block`, which began with this, leaves to the next one, given its verdict."""
        tokens = block.tokens[: accepted + 1]
        confidences = [float(each.q[each.token]) for each in tokens[:accepted]]
        if accepted < len(tokens):
            confidences.append(float(tokens[accepted].q[token]))
        stopping, threshold = self.stopping, self.threshold
        if threshold is not None:
            dropped = [each.quantized.dropped for each in tokens]
            threshold = backtrack(threshold, dropped, accepted)
        if stopping is not None:
            stopping = stopping.after(len(tokens), accepted)
        return Carried(
            threshold,
            stopping,
            (*self.confidences, *confidences)[-REMEMBERED_CONFIDENCES:],
            accepted,
            len(tokens),
        )


@dataclass(slots=True)
class DraftedBlock:
    """A block from step `step` on, of at most `longest` tokens, that began with `start`.

    `resolution` takes the place of the codec's own where a controller has chosen one.
    """

    step: int
    prefix_hash: int
    longest: int
    resolution: int | None
    start: Carried
    tokens: list[DraftedToken] = field(default_factory=list)
    bits: int = 0

    @property
    def end(self) -> int:
        """The step behind the block."""
        return self.step + len(self.tokens)

    @property
    def threshold(self) -> ConformalThreshold | None:
        """C-SQS's β of the next token to be drafted."""
        last = self.tokens[-1] if self.tokens else None
        if last is None or last.threshold is None:
            return self.start.threshold
        return last.threshold.after(last.quantized.dropped)

    def append(self, token: DraftedToken) -> None:
        self.tokens.append(token)
        self.bits += token.bits

    def thresholds(self, accepted: int) -> tuple[tuple[int, float, float], ...]:
        """(step, β, dropped mass) of every update that stands after that many accepted tokens.

        Behind a block that stands whole, the update of its last token is repeated (SQS Alg. 1).
        """
        moved = [
            (step, each.threshold, each.quantized.dropped)
            for step, each in enumerate(self.tokens[: accepted + 1], start=self.step)
            if each.threshold is not None
        ]
        if moved and accepted == len(self.tokens):
            step, threshold, dropped = moved[-1]
            moved.append((step + 1, threshold.after(dropped), dropped))
        return tuple((step, threshold.beta, dropped) for step, threshold, dropped in moved)


def first_threshold(settings: SpeculativeSettings) -> ConformalThreshold | None:
    """C-SQS's threshold of an answer's first token; None for the other codecs."""
    family, *arguments = settings.codec.split(":")
    if family != "csqs":
        return None
    return ConformalThreshold.first(
        float(arguments[0]), settings.learning_rate, settings.target, settings.horizon
    )
