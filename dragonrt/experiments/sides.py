"""Real models as sides of an arena: with the sample documents, or behind a prompt.

In a process of its own a side is as fast as it is. In virtual time its numbers are computed, so
that acceptance and bits are real, and a forward is charged a given time, however much it reads.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np

from dragonrt import bundled
from dragonrt.distributions import Codec, codec
from dragonrt.errors import DragonError
from dragonrt.experiments.arena import Outcome, RealArena, played
from dragonrt.language.model import LanguageModel
from dragonrt.language.preemption import Preemption
from dragonrt.language.reader import Mixture, Reader, Weighing
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.runtime import main as programs
from dragonrt.runtime.draft import Line, start_hash
from dragonrt.runtime.drafter import Drafter, Prediction, quantize
from dragonrt.runtime.endpoints import Address
from dragonrt.runtime.library import Library
from dragonrt.runtime.model_predictor import ModelPredictor, Runs
from dragonrt.runtime.modes.speculative import SpeculativePlan
from dragonrt.runtime.outcome import Turn
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.predictor import Predictor
from dragonrt.runtime.preparing import Grounding, Prepared
from dragonrt.runtime.process import SideSettings, open_library
from dragonrt.runtime.trace import NoTrace, Trace
from dragonrt.runtime.worker import WorkerThread
from dragonrt.side import Side
from dragonrt.simulation import loop
from dragonrt.simulation.drafter import Script, TimedModel
from dragonrt.simulation.pair import SimulatedSide
from retrieval import Progress

T = TypeVar("T")

RELEVANCE_TEMPERATURE = 0.05
"""What scores are divided by, as in a user's answers by default."""


def run(main: Coroutine[Any, Any, T], *, virtual: bool) -> T:
    """Run a coroutine to its end, in virtual time or in real time."""
    return loop.run(main) if virtual else programs.run(main)


def sample_settings(side: Side, model: str = bundled.models()[0]) -> SideSettings:
    """The settings of a side with its sample documents, as another process has them."""
    return SideSettings(side, model=model, documents=(bundled.documents(side),))


@dataclass(frozen=True, slots=True)
class LoadedSide:
    """A loaded side with its documents; a device may be connected again and again, to any cloud."""

    settings: SideSettings
    model: LanguageModel
    library: Library

    @classmethod
    def load(
        cls, settings: SideSettings, on_progress: Callable[[Progress], None] | None = None
    ) -> Self:
        """Load the model and bring the index up to date. Raises DragonError or RetrievalError."""
        model = LanguageModel.load(settings.model, settings.device, settings.dtype)
        return cls.opened(settings, model, on_progress)

    @classmethod
    def opened(
        cls,
        settings: SideSettings,
        model: LanguageModel,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Self:
        """The same where the model is there already."""
        library, _ = open_library(settings, model, on_progress)
        if library is None:
            raise DragonError("an experiment's side needs documents or an index of them")
        return cls(settings, model, library)

    def reader(
        self,
        question: str,
        documents: int,
        tokens: int,
        seed: int = 0,
        relevance_temperature: float = RELEVANCE_TEMPERATURE,
    ) -> Reader:
        """What the side says along answers of `tokens` tokens to this question, its seed given."""
        model, library = self.model, self.library
        hits = library.find(question, documents)
        prompt = model.encode(model.prompt.question_text((), question))
        stored = [library.document_kv(model, hit.chunk) for hit in hits]
        rows = model.sequence(stored, len(prompt) + tokens)
        relevances = np.array([hit.score / relevance_temperature for hit in hits])
        return Reader.behind(rows, prompt, start_hash(seed), Weighing(relevances))

    def connected(
        self, port: int, emulate: Callable[[Stream], Stream] | None = None
    ) -> AbstractAsyncContextManager[RealArena]:
        """Connected to the cloud on that loopback port, perhaps over an emulated link."""
        return self.connected_to(Address("127.0.0.1", port, emulate=emulate))

    @asynccontextmanager
    async def connected_to(self, address: Address) -> AsyncIterator[RealArena]:
        """Connected to the cloud at that address. Raises DragonError if it cannot be."""
        async with programs.device(self.settings, self.model, self.library, address) as (
            side,
            connector,
        ):
            yield RealArena(side, (connector,))


class PacedWorker:
    """Runs jobs at once and charges `seconds` of virtual time for each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def run(self, job: Callable[[], T]) -> T:
        """The result of `job()`, once its time has passed."""
        await asyncio.sleep(self._seconds)
        return job()


@asynccontextmanager
async def worker(side: Side, forward_s: float | None) -> AsyncIterator[Runs]:
    """What runs a side's forwards: in that virtual time, or (None) in a thread, in real time."""
    if forward_s is not None:
        yield PacedWorker(forward_s)
        return
    async with WorkerThread(side) as thread:
        yield thread


class PacedDrafter(TimedModel):
    """Implements Drafter: what `reader` says, each forward in `forward_s`."""

    def __init__(self, side: Side, reader: Reader, plan: Plan, code: Codec, forward_s: float):
        super().__init__(lambda: forward_s)
        self._side = side
        self._reader = reader
        self._rule = plan.aggregation_rule()
        self._codec = code

    async def predict(self, line: Line, first: int, last: int) -> list[Prediction]:
        tokens, hashes = line.tokens[:last], line.hashes[: last + 1]
        share_s = await self._pass(hashes[first:]) / (last + 1 - first)
        said = self._reader.read(tokens, hashes, first, Preemption())
        return [self._predicted(each, step, share_s) for step, each in enumerate(said, first)]

    def _predicted(self, said: Mixture, step: int, share_s: float) -> Prediction:
        token, distribution, payload = quantize(said.p, self._side, step, self._rule, self._codec)
        return Prediction(token, distribution, payload, said.relevance, 0, share_s)


@dataclass(slots=True, kw_only=True)
class DocumentSide(SimulatedSide):
    """A loaded side that answers from its documents in virtual time; retrieval is free."""

    loaded: LoadedSide

    async def prepare(
        self, question: str, history: Sequence[Turn], plan: Plan
    ) -> Prepared[Drafter]:
        await self._prepare()
        reader = self.loaded.reader(
            question, plan.documents, plan.max_tokens, plan.seed, plan.relevance_temperature
        )
        code = codec(plan.codec, self.vocabulary)
        return self._prepared(PacedDrafter(self.side, reader, plan, code, self.decode_s), question)


def document_side(loaded: LoadedSide, forward_s: float, trace: Trace | None = None) -> DocumentSide:
    """The side of those settings, as slow in reading a question as in a forward."""
    script = Script(0, vocabulary=loaded.model.vocabulary)
    return DocumentSide(
        side=loaded.settings.side,
        script=lambda _: script,
        prepare_s=forward_s,
        decode_s=forward_s,
        trace=trace or NoTrace(),
        loaded=loaded,
    )


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


@dataclass(slots=True, kw_only=True)
class TextSide(SimulatedSide):
    """A side whose model goes on from a prompt, without documents, for modes with blocks."""

    reader: Reader
    runs: Runs

    async def prepare_predictor(
        self, question: str, history: Sequence[Turn], plan: Grounding
    ) -> Prepared[Predictor]:
        return self._prepared(ModelPredictor(self.runs, self.reader), question)

    def paced(self, forward_s: float) -> "TextSide":
        """The same side and what it remembers, at that pace."""
        return replace(self, runs=PacedWorker(forward_s))


def text_side(
    side: Side,
    model: LanguageModel,
    prompt: Sequence[int],
    seed: int,
    runs: Runs | None = None,
    kind: type[Reader] = Reader,
) -> TextSide:
    """A side behind that prompt for answers with that seed; without `runs` forwards are free."""
    sequence = model.sequence([model.document_kv(())], 2 * len(prompt))
    script = Script(0, vocabulary=model.vocabulary)
    return TextSide(
        side=side,
        script=lambda _: script,
        reader=kind.behind(sequence, prompt, start_hash(seed)),
        runs=runs or PacedWorker(0.0),
    )


@dataclass(frozen=True, slots=True)
class BlockPace:
    """Seconds per forward of the draft model and of the target, and the link between them.

    `link_seed` draws the link's jitter and the course of its rates.
    """

    draft_s: float
    target_s: float
    link: LinkProfile = field(default_factory=LinkProfile)
    link_seed: int = 0


class RecalledAnswers:
    """The answers of a pair of models to one prompt with one seed, in virtual time."""

    def __init__(
        self, draft: LanguageModel, target: LanguageModel, prompt: Sequence[int], seed: int
    ) -> None:
        self._seed = seed
        self._device = text_side("device", draft, prompt, seed, kind=RecallingReader)
        self._cloud = text_side("cloud", target, prompt, seed, kind=RecallingReader)

    def answer(self, plan: SpeculativePlan, pace: BlockPace) -> Outcome:
        """One answer by speculative decoding; a controller sees the link's true rate."""
        if plan.seed != self._seed:
            raise ValueError(f"the plan has the seed {plan.seed}, not {self._seed}")
        device, cloud = self._device.paced(pace.draft_s), self._cloud.paced(pace.target_s)
        return played(plan, device, cloud, link=pace.link, link_seed=pace.link_seed)
