"""Drafting and verifying in one process and in lockstep (SPEC 2).

The rules, codecs and the threshold are the runtime's own; only the network is left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import (
    Codec,
    ConformalThreshold,
    Distribution,
    Quantized,
    Step,
    backtrack,
)
from dragonrt.sampling.verification import SpeculativeRule, VerifyResult
from scripts.lab.model_pair import AnswerReader, ModelPair
from scripts.lab.prompt import Prompt


def model_pair(draft: str, target: str, prompt: Prompt | None = None) -> ModelPair:
    """Load the models of these names as such a prompt is put to them, once in a process.

    Raises DragonError if their tokens do not mean the same.
    """
    return _loaded(draft, target, prompt is None or prompt.adapted)


@cache
def _loaded(draft: str, target: str, adapters: bool) -> ModelPair:
    return ModelPair.load(draft, target, adapters=adapters)


def both_behind(pair: ModelPair, prompt: Prompt, tokens: int) -> tuple[AnswerReader, AnswerReader]:
    """Return the draft model and the target behind a prompt, with room for so many tokens.

    They may read several texts, one after another; the prompt is read once.
    """
    draft, target = (
        AnswerReader(model, prompt.tokens, tokens) for model in (pair.draft, pair.target)
    )
    return draft, target


def alone(
    reader: AnswerReader, stops: Sequence[int], rule: SpeculativeRule, tokens: int
) -> list[int]:
    """Return the model's own text behind the prompt: so many tokens, or to the first stop."""
    text: list[int] = []
    while len(text) < tokens and set(stops).isdisjoint(text):
        p = rule.shape(reader.after(text, len(text))[0].p)
        text.append(rule.verify(len(text), [], None, [p]).token)
    return text


@dataclass(frozen=True, slots=True, eq=False)
class DraftedStep:
    """One drafted token: `q` is the draft model's distribution after the sampler, float64 [V]."""

    token: int
    q: NDArray[np.float64]
    quantized: Quantized


@dataclass(frozen=True, slots=True, eq=False)
class VerifiedBlock:
    """One block and its verdict. `p`, float64 [V] each, has one entry more than `drafted`."""

    drafted: list[DraftedStep]
    p: list[NDArray[np.float64]]
    verdict: VerifyResult

    @property
    def tokens(self) -> list[int]:
        accepted = self.drafted[: self.verdict.accepted]
        return [*(drafted.token for drafted in accepted), self.verdict.token]

    @property
    def judged(self) -> list[DraftedStep]:
        """The accepted tokens, and the rejected one if there is one."""
        return self.drafted[: self.verdict.accepted + 1]

    @property
    def rejected(self) -> bool:
        """Whether a drafted token was rejected and resampled."""
        return self.verdict.accepted < len(self.drafted)


@dataclass(slots=True, kw_only=True)
class Speculation:
    """Texts of one pair under one codec.

    A block has `length` tokens at most and, if there is a `budget`, at most so many bits (but one
    token at least). `threshold` is C-SQS's, steered along all texts; None leaves the codec's.
    """

    pair: ModelPair
    codec: Codec
    length: int
    budget: int | None = None
    threshold: ConformalThreshold | None = None

    def blocks(
        self,
        prompt: Prompt,
        rule: SpeculativeRule,
        tokens: int,
        readers: tuple[AnswerReader, AnswerReader] | None = None,
    ) -> Iterator[VerifiedBlock]:
        """Yield the blocks of one text of at least `tokens` tokens, or to its first stop.

        `readers`, of this prompt, spare reading it again.
        """
        draft, target = readers or both_behind(self.pair, prompt, tokens + self.length + 1)
        text: list[int] = []
        while len(text) < tokens and set(prompt.stops).isdisjoint(text):
            drafted = self._draft(draft, rule, text)
            line = text + [each.token for each in drafted]
            p = [rule.shape(each.p) for each in target.after(line, len(text))]
            sent = [each.quantized.distribution for each in drafted]
            verdict = rule.verify(len(text), line[len(text) :], sent, p)
            if self.threshold is not None:
                dropped = [each.quantized.dropped for each in drafted]
                self.threshold = backtrack(self.threshold, dropped, verdict.accepted)
            block = VerifiedBlock(drafted, p, verdict)
            yield block
            text += block.tokens

    def _draft(
        self, model: AnswerReader, rule: SpeculativeRule, text: list[int]
    ) -> list[DraftedStep]:
        drafted: list[DraftedStep] = []
        bits, threshold = 0, self.threshold
        while len(drafted) < self.length:
            line = text + [each.token for each in drafted]
            q = rule.shape(model.after(line, len(line))[0].p)
            beta = threshold.beta if threshold else None
            quantized = self.codec.quantize(q, Step(len(line), threshold=beta))
            bits += quantized.bits + quantized.token_bits
            if drafted and self.budget is not None and bits > self.budget:
                break
            exact = None if rule.drafts_from_quantized else Distribution.from_dense(q)
            token = rule.draft(len(line), exact or quantized.distribution)
            drafted.append(DraftedStep(token, q, quantized))
            threshold = threshold and threshold.after(quantized.dropped)
        return drafted
