"""Answers of a pair of models behind a prompt, in virtual time, each prediction computed once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from typing_extensions import override

from dragonrt.backends.mixture import Mixture
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.verification import CoupledSpeculation
from scripts.lab.arena import Given
from scripts.lab.intervals import Row
from scripts.lab.model_pair import AnswerReader, ModelPair
from scripts.lab.model_sides import text_side
from scripts.lab.prompt import Prompt
from scripts.lab.virtual_arena import played, streamed_s
from scripts.papers.framework import Settings as ExperimentSettings
from scripts.papers.speculation import alone, model_pair
from scripts.papers.texts import prompts


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

    def answer(self, settings: SpeculativeSettings, pace: BlockPace) -> Given:
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
