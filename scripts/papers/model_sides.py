"""Real models as sides of an arena: with the sample documents, or behind a prompt.

In a process of its own a side is as fast as it is. In virtual time its numbers are computed, so
that acceptance and bits are real, and a forward is charged a given time, however much it reads.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from dragonrt.backends.backend import Preemption
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.reader import Mixture, Reader, Weighing
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.mode import Prediction, Prepared, Work
from dragonrt.modes.prefix import extended, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import SpeculativeSettings
from dragonrt.node import main as programs
from dragonrt.node.backend_session import BackendSession, ForwardResult, PrefillResult
from dragonrt.node.engine import Engine, ModelSession
from dragonrt.node.worker import WorkerThread
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.verification import CoupledSpeculation
from dragonrt.side import Side
from dragonrt.testing import loop
from dragonrt.testing.pair import SimulatedSide
from dragonrt.testing.scripted import Script, ScriptedModel, SimulatedContext
from dragonrt.traces.file import Sink
from scripts.papers.arena import Given
from scripts.papers.framework import Settings as ExperimentSettings
from scripts.papers.sample_sides import LoadedSide
from scripts.papers.speculation import alone, model_pair
from scripts.papers.texts import prompts
from scripts.papers.virtual_arena import played, streamed_s
from scripts.train.controllers.prompt import Prompt

T = TypeVar("T")
R = TypeVar("R", bound=Reader)


def run(main: Coroutine[Any, Any, T], *, virtual: bool) -> T:
    """Run a coroutine to its end, in virtual time or in real time."""
    return loop.run(main) if virtual else programs.run(main)


class PacedWorker:
    """Runs jobs at once and charges `seconds` of virtual time for each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def run(self, job: Callable[[], T]) -> T:
        """The result of `job()`, once its time has passed."""
        await asyncio.sleep(self._seconds)
        return job()


@asynccontextmanager
async def engine() -> AsyncIterator[Engine]:
    """A model's own engine, for a side in real time."""
    async with WorkerThread("heads") as heads, Engine(heads) as running:
        yield running


class PacedContext(SimulatedContext):
    """Implements BackendSession: what `reader` says, each forward in that virtual time."""

    def __init__(self, reader: Reader, forward_s: float) -> None:
        super().__init__(ScriptedModel("device", Script(0)), lambda: forward_s)
        self._reader = reader

    def _computed(self, work: Work, seconds: float) -> ForwardResult:
        try:
            return ForwardResult(work, seconds, work.head(self._said(work)))
        except Exception as error:  # it belongs to who wants the work done
            return ForwardResult(work, seconds, error=error)

    def _said(self, work: Work) -> Sequence[Prediction]:
        if (span := work.span) is None:
            return ()
        tokens, hashes = [*span.tokens, *work.guess], extended(span.hashes, work.guess)
        return self._reader.read(tokens, hashes, span.first, Preemption())


@dataclass(slots=True, kw_only=True)
class ReadingSide(SimulatedSide):
    """A side in this process that answers a question with what `read` makes a reader for.

    A forward takes `decode_s` of virtual time, or with an `engine` what it takes in real time.
    """

    read: Callable[[Question], Reader]
    engine: Engine | None = None

    async def prepare(self, question: Question, *, verifies: bool) -> PrefillResult:
        await asyncio.sleep(self.prepare_s)
        reader = self.read(question)
        context: BackendSession = PacedContext(reader, self.decode_s)
        if self.engine is not None:
            context = ModelSession(self.engine, reader)
        return PrefillResult(context, Prepared(context=reader.context), (), 0, 0.0, self.prepare_s)


def document_reader(side: LoadedSide, question: Question) -> Reader:
    """What the side says along answers to a question without history."""
    model, library = side.model, side.library
    hits = library.find(question.prompt, question.documents)
    prompt = model.encode(model.prompt.question_text((), question.prompt))
    stored = [library.document_kv(hit.chunk) for hit in hits]
    rows = model.sequence(stored, len(prompt) + question.max_tokens)
    relevances = np.array([hit.score for hit in hits]) / question.relevance_temperature
    weighing = Weighing(relevances, refusal=model.refusal, doubt=question.doubt)
    return Reader.behind(rows, prompt, start_hash(question.seed), weighing)


def document_side(
    loaded: LoadedSide, forward_s: float, sinks: tuple[Sink, ...] = ()
) -> ReadingSide:
    """A loaded side in virtual time; retrieval is free, and reading a question is a forward."""
    script = Script(0, vocabulary=loaded.model.vocabulary)
    return ReadingSide(
        side=loaded.settings.side,
        script=lambda _: script,
        prepare_s=forward_s,
        decode_s=forward_s,
        sinks=sinks,
        read=partial(document_reader, loaded),
    )


def text_reader(model: LanguageModel, prompt: Sequence[int], seed: int, kind: type[R]) -> R:
    """What a model says along answers of that seed that go on from a prompt, without documents."""
    rows = model.sequence([model.document_kv(())], 2 * len(prompt))
    return kind.behind(rows, prompt, start_hash(seed))


def reading_side(
    side: Side, model: LanguageModel, reader: Reader, forward_s: float = 0.0
) -> ReadingSide:
    """A side in virtual time of which `reader` is all that it reads."""
    script = Script(0, vocabulary=model.vocabulary)
    return ReadingSide(
        side=side, script=lambda _: script, decode_s=forward_s, read=lambda _: reader
    )


def text_side(
    side: Side, model: LanguageModel, prompt: Sequence[int], seed: int, forward_s: float
) -> ReadingSide:
    """A side in virtual time that goes on from a prompt, in answers of that seed."""
    return reading_side(side, model, text_reader(model, prompt, seed, Reader), forward_s)


class RecallingReader(Reader):
    """A Reader that remembers all it said.

    Answers to one prompt under many plans, paces and links have much in common: what a model says
    after a prefix is computed once.
    """

    def __init__(self, *parts: Any, in_blocks: bool) -> None:
        super().__init__(*parts, in_blocks=in_blocks)
        self._said: dict[int, Mixture] = {}

    def read(
        self, tokens: Sequence[int], hashes: Sequence[int], first: int, preemption: Preemption
    ) -> list[Mixture]:
        """Like Reader's; the KV cache is only touched for what was never said."""
        said = self._said
        wanted = hashes[first : len(tokens) + 1]
        if not all(prefix in said for prefix in wanted):
            readings = super().read(tokens, hashes, first, preemption)
            said.update(zip(wanted, readings, strict=True))
        return [said[prefix] for prefix in wanted]


@dataclass(frozen=True, slots=True)
class BlockPace:
    """Seconds per forward of the draft model and of the target, and the link between them.

    `link_seed` draws the link's jitter and the course of its rates.
    """

    draft_s: float
    target_s: float
    link: LinkProfile = field(default_factory=LinkProfile)
    link_seed: int = 0

    def streamed_s(self, tokens: int) -> float:
        """What as many tokens of the cloud alone take; they wait for no rate."""
        return streamed_s(tokens, self.target_s, 2 * self.link.latency_s)


class RecalledAnswers:
    """The answers of a pair of models to one prompt with one seed, in virtual time."""

    def __init__(
        self, draft: LanguageModel, target: LanguageModel, prompt: Sequence[int], seed: int
    ) -> None:
        self._seed = seed
        self._target, self._prompt = target, tuple(prompt)
        models: dict[Side, LanguageModel] = {"device": draft, "cloud": target}
        self._device, self._cloud = (
            reading_side(side, model, text_reader(model, prompt, seed, RecallingReader))
            for side, model in models.items()
        )

    def answer(self, question: Question, settings: SpeculativeSettings, pace: BlockPace) -> Given:
        """One answer by speculative decoding; a controller sees the link's true rate."""
        if question.seed != self._seed:
            raise ValueError(f"the question has the seed {question.seed}, not {self._seed}")
        device = replace(self._device, decode_s=pace.draft_s)
        cloud = replace(self._cloud, decode_s=pace.target_s)
        return played(question, settings, device, cloud, link=pace.link, link_seed=pace.link_seed)

    def alone(self, question: Question) -> int:
        """The tokens of the answer that the target gives alone."""
        rule = CoupledSpeculation(Noise(question.seed), question.sampler)
        prompt = Prompt("answers", self._prompt, question.stop_tokens)
        return len(alone(self._target, prompt, rule, question.max_tokens))


@dataclass(frozen=True, slots=True)
class PromptCase:
    """One text that a pair of models, by their names, writes behind a prompt."""

    number: int
    pair: tuple[str, str]
    prompt: Prompt
    seed: int

    @classmethod
    def several(cls, settings: ExperimentSettings, count: int) -> list[Self]:
        """So many texts of the experiment's pair, of its corpus if it has one."""
        pair = (settings.draft, settings.target)
        found = prompts(model_pair(*pair).draft, count, settings.corpus)
        return [
            cls(number, pair, prompt, settings.seed * count + number)
            for number, prompt in enumerate(found)
        ]

    def answers(self) -> RecalledAnswers:
        """The answers to it."""
        models = model_pair(*self.pair)
        return RecalledAnswers(models.draft, models.target, self.prompt.tokens, self.seed)

    def question(self, temperature: float, tokens: int) -> Question:
        """What is asked of them: so many tokens at most."""
        return Question(
            seed=self.seed,
            sampler=Sampler(temperature),
            max_tokens=tokens,
            stop_tokens=self.prompt.stops,
        )
