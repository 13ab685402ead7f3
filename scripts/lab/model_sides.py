"""Real models as sides of an arena: with the sample documents, or behind a prompt.

In a process of its own a side is as fast as it is. In virtual time its numbers are computed, so
that acceptance and bits are real, and a forward is charged a given time, however much it reads.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

from typing_extensions import override

from dragonrt import bundled
from dragonrt.backends.backend import Backend
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.errors import DragonError
from dragonrt.link.stream import Stream
from dragonrt.modes.mode import Prediction, Prepared, Work
from dragonrt.modes.prefix import extended, start_hash
from dragonrt.modes.question import Question
from dragonrt.node.answers.model_session import ForwardResult, PrefillResult
from dragonrt.node.connections.addresses import Address
from dragonrt.node.process import programs
from dragonrt.node.process.composition import Loaded, complete_library, load_model
from dragonrt.node.process.library import Library
from dragonrt.node.process.local_side import weighing
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.node.worker import JobThread, Worker
from dragonrt.service.cloud_process import cloud_process
from dragonrt.service.comparison import connected
from dragonrt.service.comparison import sample_settings as sample_settings
from dragonrt.side import Side
from dragonrt.testing import loop
from dragonrt.testing.pair import SimulatedSide
from dragonrt.testing.scripted import Script, ScriptedModel, SimulatedContext
from scripts.lab.arena import RealArena

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
    """A session that says what `reader` says, each forward in that virtual time."""

    def __init__(self, reader: PrefixCache, forward_s: float) -> None:
        super().__init__(ScriptedModel("device", Script(0)), lambda: forward_s)
        self._reader = reader

    @override
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
    """A side in virtual time that answers a question with the reader that `read` makes for it."""

    read: Callable[[Question], PrefixCache]

    @override
    async def prepare(self, question: Question, **how: object) -> PrefillResult:
        await asyncio.sleep(self.prepare_s)
        reader = self.read(question)
        context = PacedContext(reader, self.decode_s)
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


def document_reader(side: "LoadedSide", question: Question) -> PrefixCache:
    """Return a reader of the side's answers to a question without history."""
    model, library = side.model, side.library
    hits = library.find(question.prompt, question.documents)
    prompt = model.encode(model.prompt.question_text((), question.prompt))
    stored = [library.document_kv(hit.chunk) for hit in hits]
    rows = model.rows(stored, len(prompt) + question.max_tokens)
    weights = weighing(model, question, hits, library.embedder, side.settings.side)
    return PrefixCache.behind(rows, prompt, start_hash(question.seed), weights)


def document_side(loaded: "LoadedSide", forward_s: float) -> ReadingSide:
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


@dataclass(frozen=True, slots=True)
class LoadedSide:
    """A loaded side with its documents; a device may be connected again and again, to any cloud."""

    settings: SideSettings
    model: LanguageModel
    library: Library

    @classmethod
    def load(cls, settings: SideSettings) -> Self:
        """Load the model and complete the index. Raises DragonError."""
        return cls.opened(settings, load_model(settings))

    @classmethod
    def opened(cls, settings: SideSettings, model: LanguageModel) -> Self:
        """Complete the index for a model that is already loaded. Raises DragonError."""
        library = complete_library(settings, model)
        if library is None:
            raise DragonError("an experiment's side needs documents or an index of them")
        return cls(settings, model, library)

    @classmethod
    def both(cls, model: str) -> tuple[Self, Self]:
        """Load a device and a cloud of one model with the sample documents of each side."""
        device = cls.load(sample_settings("device", model))
        return device, cls.opened(sample_settings("cloud", model), device.model)

    def connected(
        self, port: int, emulate: Callable[[Stream], Stream] | None = None
    ) -> AbstractAsyncContextManager[RealArena]:
        """Connect to the cloud on that loopback port, perhaps over an emulated link."""
        return self.connected_to(Address("127.0.0.1", port, emulate=emulate))

    @asynccontextmanager
    async def connected_to(self, address: Address) -> AsyncIterator[RealArena]:
        """Connect to the cloud at that address. Raises DragonError if it cannot be reached."""
        async with connected(Loaded(self.settings, self.model, self.library), address) as device:
            yield RealArena(device.side, device.connectors)


@contextmanager
def sample_pair(model: str, *options: str, **settings: Any) -> Iterator[tuple[LoadedSide, int]]:
    """Yield a device with its sample documents, and a cloud's port.

    Both sides have these settings; the cloud has the options, too.
    """
    device = LoadedSide.load(sample_settings("device", model, **settings))
    complete_library(sample_settings("cloud", model, **settings), device.model)
    command = [f"--documents={bundled.documents('cloud')}", *options]
    with cloud_process(*command, model=model, within=environment(settings)) as cloud:
        # The indexes are complete: others only open them.
        yield device, cloud.wait_ready()


def environment(settings: Mapping[str, Any]) -> list[str]:
    """Return the command within which a side has these settings, options or not, but None."""
    given = [(name.upper(), value) for name, value in settings.items() if value is not None]
    return ["env", *(f"DRAGONRT_{name}={value}" for name, value in given)]
