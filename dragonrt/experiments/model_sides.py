"""Real models as sides of an arena: with the sample documents, or behind a prompt.

In a process of its own a side is as fast as it is. In virtual time its numbers are computed, so
that acceptance and bits are real, and a forward is charged a given time, however much it reads.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np

from dragonrt import bundled
from dragonrt.errors import DragonError
from dragonrt.experiments.arena import Given, RealArena, played, streamed_s
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.experiments.framework import Settings as ExperimentSettings
from dragonrt.experiments.speculation import alone, model_pair
from dragonrt.experiments.texts import prompts
from dragonrt.language.model import LanguageModel
from dragonrt.language.preemption import Preemption
from dragonrt.language.prompt import Prompt
from dragonrt.language.reader import Mixture, Reader, Weighing
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.modes.line import extended, start_hash
from dragonrt.modes.mode import Grounds, Said, Work
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings, SpeculativeSettings
from dragonrt.runtime import main as programs
from dragonrt.runtime.addresses import Member
from dragonrt.runtime.endpoints import Address
from dragonrt.runtime.engine import Engine, ModelContext
from dragonrt.runtime.library import Library
from dragonrt.runtime.preparing import Context, Outcome, Prepared
from dragonrt.runtime.process import complete_library, load_model
from dragonrt.runtime.side_settings import SideSettings
from dragonrt.runtime.worker import WorkerThread
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.verification import CoupledSpeculation
from dragonrt.side import Precision, Side
from dragonrt.simulation import loop
from dragonrt.simulation.pair import SimulatedSide
from dragonrt.simulation.scripted import Script, ScriptedModel, SimulatedContext
from dragonrt.traces.file import Sink
from retrieval import Progress

T = TypeVar("T")
R = TypeVar("R", bound=Reader)


def run(main: Coroutine[Any, Any, T], *, virtual: bool) -> T:
    """Run a coroutine to its end, in virtual time or in real time."""
    return loop.run(main) if virtual else programs.run(main)


def sample_settings(
    side: Side, model: str = bundled.models()[0], dtype: Precision = "auto"
) -> SideSettings:
    """The settings of a side with its sample documents, as another process has them."""
    return SideSettings(side, model=model, dtype=dtype, documents=(bundled.documents(side),))


@dataclass(frozen=True, slots=True)
class LoadedSide:
    """A loaded side with its documents; a device may be connected again and again, to any cloud."""

    settings: SideSettings
    model: LanguageModel
    library: Library

    @classmethod
    def load(
        cls,
        settings: SideSettings,
        on_progress: Callable[[Progress], None] | None = None,
        *,
        kv: bool = True,
    ) -> Self:
        """Load the model and complete the index, with KV or without. Raises DragonError."""
        model = load_model(settings)
        return cls.opened(settings, model, on_progress, kv=kv)

    @classmethod
    def opened(
        cls,
        settings: SideSettings,
        model: LanguageModel,
        on_progress: Callable[[Progress], None] | None = None,
        *,
        kv: bool = True,
    ) -> Self:
        """The same where the model is there already."""
        library = complete_library(settings, model, on_progress, kv=kv)
        if library is None:
            raise DragonError("an experiment's side needs documents or an index of them")
        return cls(settings, model, library)

    def reader(self, question: Question) -> Reader:
        """What the side says along answers to a question without history."""
        model, library = self.model, self.library
        hits = library.find(question.prompt, question.documents)
        prompt = model.encode(model.prompt.question_text((), question.prompt))
        stored = [library.document_kv(model, hit.chunk) for hit in hits]
        rows = model.sequence(stored, len(prompt) + question.max_tokens)
        relevances = np.array([hit.score for hit in hits]) / question.relevance_temperature
        weighing = Weighing(relevances, refusal=model.refusal, doubt=question.doubt)
        return Reader.behind(rows, prompt, start_hash(question.seed), weighing)

    def connected(
        self, port: int, emulate: Callable[[Stream], Stream] | None = None
    ) -> AbstractAsyncContextManager[RealArena]:
        """Connected to the cloud on that loopback port, perhaps over an emulated link."""
        return self.connected_to(Address("127.0.0.1", port, emulate=emulate))

    @asynccontextmanager
    async def connected_to(self, address: Address) -> AsyncIterator[RealArena]:
        """Connected to the cloud at that address. Raises DragonError if it cannot be."""
        cloud = Member("cloud", address)
        async with programs.device(
            self.settings, self.model, self.library, [cloud], DragonSettings()
        ) as device:
            if not device.connectors["cloud"].connected:
                raise DragonError(device.connectors["cloud"].absence)
            yield RealArena(device.side, device.connectors)


@contextmanager
def sample_pair(
    model: str = bundled.models()[0], dtype: Precision = "auto"
) -> Iterator[tuple[LoadedSide, int]]:
    """A device with its sample documents, and the loopback port of a cloud in a second process."""
    documents = str(bundled.documents("cloud"))
    device = LoadedSide.load(sample_settings("device", model, dtype))
    complete_library(sample_settings("cloud", model, dtype), device.model)
    with cloud_process("--documents", documents, "--dtype", dtype, model=model) as cloud:
        yield device, cloud.wait_ready()  # the indexes are complete: others only open them


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
    """Implements Context: what `reader` says, each forward in that virtual time."""

    def __init__(self, reader: Reader, forward_s: float) -> None:
        super().__init__(ScriptedModel("device", Script(0)), lambda: forward_s)
        self._reader = reader

    def _computed(self, work: Work, seconds: float) -> Outcome:
        try:
            return Outcome(work, seconds, work.head(self._said(work)))
        except Exception as error:  # it belongs to who wants the work done
            return Outcome(work, seconds, error=error)

    def _said(self, work: Work) -> Sequence[Said]:
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

    async def prepare(self, question: Question, *, verifies: bool) -> Prepared:
        await asyncio.sleep(self.prepare_s)
        reader = self.read(question)
        context: Context = PacedContext(reader, self.decode_s)
        if self.engine is not None:
            context = ModelContext(self.engine, reader)
        return Prepared(context, Grounds(context=reader.context), (), 0, 0.0, self.prepare_s)


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
        read=loaded.reader,
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
