"""Blocks of drafts: Block on the device, ReadBlock on the cloud, Advance for what was decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragonrt.control.trained import ControlState
from dragonrt.distributions import (
    Codec,
    ConformalThreshold,
    Distribution,
    Quantized,
    backtrack,
    codec,
)
from dragonrt.modes.messages import Block as BlockMessage
from dragonrt.modes.prefix import LOW_BITS
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Resources, Settings
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import SpeculativeRule, VerifyResult, speculative_rule
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.statistics import acceptance, mean, milliseconds, share

REMEMBERED_CONFIDENCES = 32  # of the newest tokens, for a controller


def rule_and_codec(
    question: Question, settings: Settings, resources: Resources
) -> tuple[SpeculativeRule, Codec]:
    """Return the rule that drafts and verifies a question's blocks, and the codec of the blocks."""
    rule = speculative_rule(settings.rule, Noise(question.seed), question.sampler)
    by_id = not rule.drafts_from_quantized
    return rule, codec(settings.codec, resources.vocabulary, tokens_by_id=by_id)


@dataclass(frozen=True, slots=True, eq=False)
class DraftedToken:
    """A drafted token of a block, with its distribution as the codec transmits it (`quantized`).

    `q` is the distribution before the codec, float64 [V], None unless a controller sizes blocks.
    `threshold` is the probability below which C-SQS dropped tokens from it, None without C-SQS.
    """

    token: int
    quantized: Quantized
    q: NDArray[np.float64] | None = None
    threshold: ConformalThreshold | None = None

    @property
    def bits(self) -> int:
        """The number of bits that the token and its distribution add to the block's payload."""
        return self.quantized.bits + self.quantized.token_bits


@dataclass(frozen=True, slots=True)
class BlockState:
    """What the device keeps between blocks: C-SQS's threshold, and inputs of a length controller.

    `threshold` is for the next token, None with other codecs. `confidences` has the draft model's
    probabilities of the newest decided tokens. `drafted` counts the last block's drafts up to the
    first rejected one, `accepted` those accepted.
    """

    threshold: ConformalThreshold | None = None
    confidences: tuple[float, ...] = ()
    accepted: int = 0
    drafted: int = 0

    def state(self, next_confidence: float, rate: float) -> ControlState:
        """Return the input of the controller that chooses the length of the next block.

        `next_confidence` is the top probability for its first token, `rate` the uplink's bit/s.
        """
        return ControlState(self.confidences, next_confidence, rate, self.accepted, self.drafted)

    def after(self, block: Block, accepted: int, token: int) -> BlockState:
        """Return the state after `accepted` tokens of `block` are accepted and `token` follows."""
        tokens = block.tokens[: accepted + 1]
        text = [*(each.token for each in tokens[:accepted]), token]
        threshold = self.threshold
        if threshold is not None:
            dropped = [each.quantized.dropped for each in tokens]
            threshold = backtrack(threshold, dropped, accepted)
        pairs = zip(tokens, text, strict=False)
        confidences = [float(each.q[token]) for each, token in pairs if each.q is not None]
        newest = (*self.confidences, *confidences)[-REMEMBERED_CONFIDENCES:]
        return BlockState(threshold, newest, accepted, len(tokens))


@dataclass(slots=True)
class Block:
    """A block of drafts on the device; they follow the text's first `step` tokens (`prefix_hash`).

    Attributes:
        longest: the number of tokens at which the block is complete.
        resolution: the denominator ℓ of a lattice codec if a controller chose it, otherwise None.
        resolutions: (resolution,) if the block's message carries `resolution`, otherwise ().
        start: the BlockState before this block.
        payload: the encoded tokens and distributions, once the block is complete.
        decided: decided tokens before `step` that the cloud does not have yet.
        round: the block's number in its session, from 1, once it is sent at `sent_s` seconds.
    """

    step: int
    prefix_hash: int
    longest: int = 1
    resolution: int | None = None
    start: BlockState = field(default_factory=BlockState)
    tokens: list[DraftedToken] = field(default_factory=list)
    payload: bytes = b""
    decided: tuple[int, ...] = ()
    resolutions: tuple[int, ...] = ()
    round: int = 0
    sent_s: float = 0.0

    @property
    def count(self) -> int:
        return len(self.tokens)

    @property
    def end(self) -> int:
        """The step of the token that follows the block: `step` plus the number of its tokens."""
        return self.step + len(self.tokens)

    @property
    def bits(self) -> int:
        """The size of the block's tokens and distributions in bits, by formulas of QSV and SQS."""
        return sum(each.bits for each in self.tokens)

    @property
    def threshold(self) -> ConformalThreshold | None:
        """The threshold below which C-SQS drops candidates of the next token; None without it."""
        last = self.tokens[-1] if self.tokens else None
        if last is None or last.threshold is None:
            return self.start.threshold
        return last.threshold.after(last.quantized.dropped)

    def thresholds(self, accepted: int) -> list[tuple[int, float, float]]:
        """Return (step, C-SQS's threshold β, probability dropped below β) of each decided token.

        A verdict decides the `accepted` drafts and one token more. If it accepts the whole block,
        the last token has no draft, and gets what the draft before it dropped. Empty without C-SQS.
        """
        moved = [
            (step, each.threshold, each.quantized.dropped)
            for step, each in enumerate(self.tokens[: accepted + 1], start=self.step)
            if each.threshold is not None
        ]
        if moved and accepted == len(self.tokens):
            step, threshold, dropped = moved[-1]
            moved.append((step + 1, threshold.after(dropped), dropped))
        return [(step, threshold.beta, dropped) for step, threshold, dropped in moved]

    def message(self, session: int) -> BlockMessage:
        """Return the wire message that sends this block in session number `session`."""
        place = self.step, self.prefix_hash & LOW_BITS, self.count
        return BlockMessage(
            session, self.round, *place, self.resolutions, self.decided, self.payload
        )


class DecidedDraft(NamedTuple):
    """A newly decided token of the answer, and what became of the draft in its place.

    `accepted` is True if the draft was accepted, False if it was rejected, None without a draft.
    """

    token: int
    accepted: bool | None


@dataclass(frozen=True, slots=True)
class Advance:
    """What changed in the device's text after a draft was computed, or after the cloud's decision.

    `decided` are the newly decided tokens. The caller must send `block`, unless None. If `cut`,
    drafts were dropped, and replies to blocks sent before must be ignored. If that is due to a
    Target, a token that the cloud decided without a block, `verdicts` has (number of drafts, number
    accepted, next token) of each sent block, up to the one that the Target contradicts.
    """

    decided: tuple[DecidedDraft, ...] = ()
    block: Block | None = None
    cut: bool = False
    verdicts: tuple[tuple[int, int, int], ...] = ()


@dataclass(slots=True)
class ReadBlock:
    """A block as the cloud decodes it: the drafted `tokens`, of which the first is for `step`.

    `q` has the distribution that each token was drafted from, None if the codec sends none.
    """

    step: int
    tokens: list[int]
    q: Sequence[Distribution] | None = None


@dataclass(frozen=True, slots=True)
class Uploads:
    """The content of a federated worker's Upload message: its encoded distributions for a block.

    `payloads` has one for each drafted token and one for the next token. `relevance` is the side
    relevance h̃, the log-sum-exp of the relevances of the worker's documents.
    """

    relevance: float
    payloads: tuple[bytes, ...]


Judged = VerifyResult | Uploads


def block_statistics(answer: AnswerCounts) -> dict[str, Any]:
    """Return the statistics of an answer decided by blocks, by name: counts, shares, bits, ms."""
    return {
        "acceptance": acceptance(answer, "device"),
        "blocks": answer.blocks,
        "drafted": answer.block_tokens,
        "accepted": answer.accepted_tokens,
        "resampled": answer.resampled,
        "resampling_rate": share(answer.resampled, answer.verified),
        # Sent and never judged: a block before them was not accepted as guessed.
        "wasted": answer.block_tokens - answer.judged,
        "bits_up": answer.bits,
        "bits_per_token": mean(answer.bits, answer.tokens),
        "forwards": answer.forwards,
        "preempted": answer.preempted,
        "draft_ms": milliseconds(answer.forward_s),
        "verify_ms": milliseconds(answer.verify_s),
        "waited_ms": milliseconds(answer.verdicts_waited_s),
        "alone_from": answer.alone_from,
    }
