"""Real models as sides of an arena: with the sample documents, or behind a prompt.

In a process of its own a side is as fast as it is. In virtual time its numbers are computed, so
that acceptance and bits are real, and a forward is charged a given time, however much it reads.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from dragonrt.backends.backend import Backend
from dragonrt.backends.mixture import Mixture, Weighing
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.mode import Prediction, Prepared, Work
from dragonrt.modes.prefix import extended, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.node import main as programs
from dragonrt.node.backend_session import BackendSession, ForwardResult, PrefillResult
from dragonrt.node.job_thread import JobThread
from dragonrt.node.model_session import ModelSession
from dragonrt.node.worker import Worker
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.verification import CoupledSpeculation
from dragonrt.side import Side
from dragonrt.testing import loop
from dragonrt.testing.pair import SimulatedSide
from dragonrt.testing.scripted import Script, ScriptedModel, SimulatedContext
from scripts.papers.arena import Given
from scripts.papers.framework import Settings as ExperimentSettings
from scripts.papers.intervals import Row
from scripts.papers.sample_sides import LoadedSide
from scripts.papers.speculation import alone, model_pair
from scripts.papers.texts import prompts
from scripts.papers.virtual_arena import played, streamed_s
from scripts.train.controllers.model_pair import ModelPair
from scripts.train.controllers.prompt import Prompt

T = TypeVar("T")
R = TypeVar("R", bound=PrefixCache)


def run(main: Coroutine[Any, Any, T], *, virtual: bool) -> T:
    """Run a coroutine to its end, in virtual time or in real time."""
    return loop.run(main) if virtual else programs.run(main)


class PacedWorker:
    """Runs jobs at once and charges `seconds` of virtual time for each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def call(self, job: Callable[[], T]) -> T:
        """Return the result of `job()`, once its time has passed."""
        await asyncio.sleep(self._seconds)
        return job()


@asynccontextmanager
async def worker(backend: Backend) -> AsyncIterator[Worker]:
    """Yield a model's own worker, for a side in real time."""
    async with JobThread("postprocessing") as beside, Worker(backend, beside) as running:
        yield running


class PacedContext(SimulatedContext):
    """Implements BackendSession: what `reader` says, each forward in that virtual time."""

    def __init__(self, reader: PrefixCache, forward_s: float) -> None:
        super().__init__(ScriptedModel("device", Script(0)), lambda: forward_s)
        self._reader = reader

    def _computed(self, work: Work, seconds: float) -> ForwardResult:
        try:
            return ForwardResult(work, seconds, work.postprocess(self._said(work)))
        except Exception as error:  # it belongs to who wants the work done
            return ForwardResult(work, seconds, error=error)

    def _said(self, work: Work) -> Sequence[Prediction]:
        if (span := work.span) is None:
            return ()
        tokens, hashes = [*span.tokens, *work.guess], extended(span.hashes, work.guess)
        return self._reader.read(tokens, hashes, span.first, hidden=span.hidden)


@dataclass(slots=True, kw_only=True)
class ReadingSide(SimulatedSide):
    """A side in this process that answers a question with the reader that `read` makes for it.

    A forward takes `decode_s` of virtual time, or with a `worker` what it takes in real time.
    """

    read: Callable[[Question], PrefixCache]
    worker: Worker | None = None

    async def prepare(self, question: Question, **how: object) -> PrefillResult:
        await asyncio.sleep(self.prepare_s)
        reader = self.read(question)
        context: BackendSession = PacedContext(reader, self.decode_s)
        if self.worker is not None:
            context = ModelSession(self.worker, reader)
        return PrefillResult(context, Prepared(context=reader.context), (), 0, 0.0, self.prepare_s)


def reading_side(
    side: Side,
    model: LanguageModel,
    read: Callable[[Question], PrefixCache],
    forward_s: float = 0.0,
    prepare_s: float = 0.0,
) -> ReadingSide:
    """Return a side in virtual time that answers with the readers of `read`."""
    script = Script(0, vocabulary=model.vocabulary)
    return ReadingSide(
        side=side, script=lambda _: script, prepare_s=prepare_s, decode_s=forward_s, read=read
    )


def document_reader(side: LoadedSide, question: Question) -> PrefixCache:
    """Return a reader of the side's answers to a question without history."""
    model, library = side.model, side.library
    hits = library.find(question.prompt, question.documents)
    prompt = model.encode(model.prompt.question_text((), question.prompt))
    stored = [library.document_kv(hit.chunk) for hit in hits]
    rows = model.rows(stored, len(prompt) + question.max_tokens)
    relevances = np.array([hit.score for hit in hits]) / question.relevance_temperature
    weighing = Weighing(relevances, refusal=model.refusal, doubt=question.doubt)
    return PrefixCache.behind(rows, prompt, start_hash(question.seed), weighing)


def document_side(loaded: LoadedSide, forward_s: float) -> ReadingSide:
    """Return a loaded side in virtual time: retrieval is free, reading a question is a forward."""
    read = partial(document_reader, loaded)
    return reading_side(loaded.settings.side, loaded.model, read, forward_s, forward_s)


def text_reader(model: LanguageModel, prompt: Sequence[int], seed: int, kind: type[R]) -> R:
    """Return a reader of answers of that seed that go on from a prompt, without documents."""
    rows = model.rows([model.document_kv(())], 2 * len(prompt))
    return kind.behind(rows, prompt, start_hash(seed))


def text_side(
    side: Side,
    model: LanguageModel,
    prompt: Sequence[int],
    seed: int,
    forward_s: float,
    kind: type[PrefixCache] = PrefixCache,
) -> ReadingSide:
    """Return a side in virtual time that goes on from a prompt, in answers of that seed."""
    reader = text_reader(model, prompt, seed, kind)
    return reading_side(side, model, lambda _: reader, forward_s)


class RecallingReader(PrefixCache):
    """A PrefixCache that computes each prediction once."""

    def __init__(self, *parts: Any, in_blocks: bool) -> None:
        super().__init__(*parts, in_blocks=in_blocks)
        self._said: dict[int, Mixture] = {}

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
            "accepted_per_call": counts.stood / max(counts.verified, 1),
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
        prompt = Prompt("answers", self._prompt, question.stop_tokens)
        tokens = len(alone(self._target, prompt, rule, question.max_tokens))
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
