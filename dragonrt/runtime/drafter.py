"""The model behind a generation, as the runtime sees it."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Codec, Distribution, Step, encode_distribution
from dragonrt.runtime.draft import Line
from dragonrt.sampling.aggregation import Rule
from dragonrt.side import Side


class PreemptedError(Exception):
    """The forward was stopped because its line died; nothing of it remains."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one side's model says after one prefix.

    `distribution` is the decoded `payload`, never the model's own numbers: quantize, then sample
    (SPEC section 0). `token` was drafted from it. `document` is the row that carried the token,
    `relevance` is h̃ and `decode_s` the seconds the forward took per position.
    """

    token: int
    distribution: Distribution
    payload: bytes
    relevance: float
    document: int
    decode_s: float


class Drafter(Protocol):
    """One model with its documents, answering for one generation.

    The KV cache is the drafter's own affair: it is cut back to the common prefix of what it holds
    and what it is asked for. One call at a time.
    """

    async def predict(self, line: Line, first: int, last: int) -> list[Prediction]:
        """Predictions after each prefix of `line` of length `first`, `first` + 1, … `last`.

        There may be more: each further one is after the prefix that the draft token of the one
        before it makes, so a drafter may run ahead along its own drafts.

        Raises PreemptedError after `preempt`.
        """
        ...

    def preempt(self) -> None:
        """Stop the forward under way as soon as possible; without effect when there is none."""
        ...


def quantize(
    p: NDArray[np.floating], side: Side, step: int, rule: Rule, codec: Codec
) -> tuple[int, Distribution, bytes]:
    """Quantize, then sample (SPEC section 0): the draft token, p̂ and the bytes that say p̂.

    `p` is the side's dense distribution [V]; the token is sampled from what the bytes decode to.
    """
    quantized = codec.quantize(rule.shape(p), Step(step))
    sent = quantized.distribution
    return rule.draft(side, step, sent), sent, encode_distribution(codec, quantized)
