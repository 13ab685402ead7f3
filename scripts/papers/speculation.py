"""Drafting and verifying (SPEC 2): in lockstep in one process, or by the runtime in virtual time.

In lockstep the rules, codecs and the threshold are the runtime's own; only the network is left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.backends.mixture import Mixture
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.distributions import (
    Codec,
    ConformalThreshold,
    Distribution,
    Quantized,
    Step,
    backtrack,
)
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import CoupledSpeculation, SpeculativeRule, VerifyResult
from dragonrt.sampling.samplers import Sampler
from scripts.lab.arena import MeasuredAnswer, played, streamed_s
from scripts.lab.intervals import Row
from scripts.lab.model_pair import AnswerReader, ModelPair
from scripts.lab.model_sides import text_side
from scripts.lab.prompt import Prompt
from scripts.papers.framework import Settings as ExperimentSettings
from scripts.papers.texts import prompts


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
        text.append(rule.verify(len(text), [], None, [p].__getitem__).token)
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
            verdict = rule.verify(len(text), line[len(text) :], sent, p.__getitem__)
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


class RecallingReader(PrefixCache):
    """A PrefixCache that computes each prediction once."""

    def __init__(self, *parts: Any, in_blocks: bool) -> None:
        super().__init__(*parts, in_blocks=in_blocks)
        self._said: dict[int, Mixture] = {}

    @override
    def read(
        self, tokens: Sequence[int], hashes: Sequence[int], first: int, *, hidden: bool = False
    ) -> list[Mixture]:
        said = self._said
        wanted = hashes[first : len(tokens) + 1]
        if not all(prefix in said for prefix in wanted):
            readings = super().read(tokens, hashes, first, hidden=True)
            said.update(zip(wanted, readings, strict=True))
        return [said[prefix] for prefix in wanted]


@dataclass(frozen=True, slots=True)
class BlockPace:
    """Seconds per forward of the draft model and of the target, and the link between them."""

    draft_s: float
    target_s: float
    link: LinkProfile = field(default_factory=LinkProfile)
    link_seed: int = 0


class RecalledAnswers:
    """The answers of a pair of models to one question behind a prompt, in virtual time."""

    def __init__(self, pair: ModelPair, prompt: Sequence[int], question: Question) -> None:
        self._target, self._prompt, self._question = pair.target, tuple(prompt), question
        same = (prompt, question.seed, 0.0, RecallingReader)
        self._device = text_side("device", pair.draft, *same)
        self._cloud = text_side("cloud", pair.target, *same)

    def answer(self, settings: SpeculativeSettings, pace: BlockPace) -> MeasuredAnswer:
        """Return an answer by speculative decoding; a controller sees the link's true rate."""
        device = replace(self._device, decode_s=pace.draft_s)
        cloud = replace(self._cloud, decode_s=pace.target_s)
        link, seed = pace.link, pace.link_seed
        return played(self._question, settings, device, cloud, link=link, link_seed=seed)

    def costs(self, settings: SpeculativeSettings, pace: BlockPace) -> Row:
        """Return what `answer` cost, as columns.

        Rates per call and second are None if the link was so slow that the device took it for
        lost, and went on alone.
        """
        given = self.answer(settings, pace)
        counts, tokens = given.counts, len(given.tokens)
        rates = {
            "tokens_per_s": tokens / given.seconds,
            "tokens_per_call": tokens / max(counts.verified, 1),
            "accepted_per_call": counts.accepted_tokens / max(counts.verified, 1),
            "resampling_rate": counts.resampled / max(counts.verified, 1),
        }
        return {
            "tokens": tokens,
            "seconds": given.seconds,
            "calls": counts.verified,
            "bits": counts.bits,
            "bytes": given.answer.bytes_sent,
            "bits_per_token": counts.bits / tokens,
            "drafted_per_block": counts.block_tokens / max(counts.blocks, 1),
            **(rates if counts.alone_from is None else dict.fromkeys(rates)),
        }

    def streamed(self, pace: BlockPace) -> Row:
        """Return the same columns of the target's own answer, which needs no uplink."""
        question = self._question
        rule = CoupledSpeculation(Noise(question.seed), question.sampler)
        reader = AnswerReader(self._target, self._prompt, question.max_tokens)
        tokens = len(alone(reader, question.stop_tokens, rule, question.max_tokens))
        seconds = streamed_s(tokens, pace.target_s, 2 * pace.link.latency_s)
        unsent = ("bits", "bytes", "bits_per_token", "drafted_per_block", "resampling_rate")
        return dict.fromkeys(unsent) | {
            "tokens": tokens,
            "seconds": seconds,
            "calls": tokens,
            "tokens_per_s": tokens / seconds,
            "tokens_per_call": 1.0,
            "accepted_per_call": 0.0,
        }


@dataclass(frozen=True, slots=True)
class PromptCase:
    """One text that a pair of models, by their names, writes behind a prompt."""

    number: int
    pair: tuple[str, str]
    prompt: Prompt
    seed: int

    @classmethod
    def several(cls, settings: ExperimentSettings, each: int) -> Iterator[Self]:
        """Yield so many texts of each kind, of the figure's corpora if it has some."""
        found = prompts(model_pair(*settings.pair).draft, each, settings.corpora)
        for number, prompt in enumerate(found):
            yield cls(number, settings.pair, prompt, settings.seed * len(found) + number)

    def answers(self, temperature: float, tokens: int) -> RecalledAnswers:
        """Return the answers of so many tokens at most."""
        question = question_of(self.prompt, self.seed, temperature, tokens)
        pair = model_pair(*self.pair, self.prompt)
        return RecalledAnswers(pair, self.prompt.tokens, question)


def question_of(prompt: Prompt, seed: int, temperature: float, tokens: int) -> Question:
    """Return the question for so many tokens at most behind a prompt."""
    return Question(
        seed=seed, sampler=Sampler(temperature), max_tokens=tokens, stop_tokens=prompt.stops
    )
