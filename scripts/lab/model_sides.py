"""Real models as sides of an arena: with the sample documents, or continuing a prompt.

In a process of its own a side is as fast as it is. In virtual time its predictions are computed, so
that acceptance and bits are real, but each forward is charged a given time, whatever it reads.
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
from dragonrt.node.model_thread import JobThread, ModelThread
from dragonrt.node.process import programs
from dragonrt.node.process.composition import Loaded, complete_library, load_model
from dragonrt.node.process.library import Library
from dragonrt.node.process.local_side import weighing
from dragonrt.node.process.side_settings import SideSettings
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
    """Run a coroutine to its end and return its result, in virtual time or in real time."""
    return loop.run(main) if virtual else programs.run(main)


class PacedWorker:
    """A thread for virtual time: each job is charged `seconds`, however long it takes."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def call(self, job: Callable[[], T]) -> T:
        """Return the result of `job()` after `seconds` of virtual time."""
        await asyncio.sleep(self._seconds)
        return job()


@asynccontextmanager
async def thread(backend: Backend) -> AsyncIterator[ModelThread]:
    """Yield the ModelThread that runs the forwards of `backend`, for a side in real time."""
    async with JobThread("postprocessing") as beside, ModelThread(backend, beside) as running:
        yield running


class PacedContext(SimulatedContext):
    """A session in virtual time that predicts as `reader` does; a forward takes `forward_s`."""

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
    """A side in virtual time that predicts an answer with the PrefixCache that `read` returns."""

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
    """Return a side in virtual time that answers by `read`; see ReadingSide. Times in seconds."""
    script = Script(0, vocabulary=model.vocabulary)
    return ReadingSide(
        side=side, script=lambda _: script, prepare_s=prepare_s, decode_s=forward_s, read=read
    )


def document_reader(side: "LoadedSide", question: Question) -> PrefixCache:
    """Return the PrefixCache with which a side answers a question from its documents."""
    model, library = side.model, side.library
    hits = library.find(question.prompt, question.documents)
    prompt = model.encode(model.prompt.question_text((), question.prompt))
    stored = [library.document_kv(hit.chunk) for hit in hits]
    rows = model.rows(stored, len(prompt) + question.max_tokens)
    weights = weighing(model, question, hits, library.embedder, side.settings.side)
    return PrefixCache.with_prompt_read(rows, prompt, start_hash(question.seed), weights)


def document_side(loaded: "LoadedSide", forward_s: float) -> ReadingSide:
    """Return a loaded side in virtual time: retrieval is free, reading a question is a forward."""
    read = partial(document_reader, loaded)
    return reading_side(loaded.settings.side, loaded.model, read, forward_s, forward_s)


def text_reader(model: LanguageModel, prompt: Sequence[int], seed: int, kind: type[R]) -> R:
    """Return a cache, of class `kind`, that continues a prompt without documents, for `seed`."""
    rows = model.rows([model.document_kv(())], 2 * len(prompt))
    return kind.with_prompt_read(rows, prompt, start_hash(seed))


def text_side(
    side: Side,
    model: LanguageModel,
    prompt: Sequence[int],
    seed: int,
    forward_s: float,
    kind: type[PrefixCache] = PrefixCache,
) -> ReadingSide:
    """Return a side in virtual time that continues `prompt` without documents, for `seed`."""
    reader = text_reader(model, prompt, seed, kind)
    return reading_side(side, model, lambda _: reader, forward_s)


@dataclass(frozen=True, slots=True)
class LoadedSide:
    """A side with its loaded model and documents, which may be connected any number of times."""

    settings: SideSettings
    model: LanguageModel
    library: Library

    @classmethod
    def load(cls, settings: SideSettings) -> Self:
        """Load the side's model, and complete its index of documents. Raises DragonError."""
        return cls.opened(settings, load_model(settings))

    @classmethod
    def opened(cls, settings: SideSettings, model: LanguageModel) -> Self:
        """Complete the index for a model that is loaded; return the side. Raises DragonError."""
        library = complete_library(settings, model)
        if library is None:
            raise DragonError("an experiment's side needs documents or an index of them")
        return cls(settings, model, library)

    @classmethod
    def both(cls, model: str) -> tuple[Self, Self]:
        """Return a device and a cloud that share one model and have their own sample documents."""
        device = cls.load(sample_settings("device", model))
        return device, cls.opened(sample_settings("cloud", model), device.model)

    def connected(
        self, port: int, emulate: Callable[[Stream], Stream] | None = None
    ) -> AbstractAsyncContextManager[RealArena]:
        """Connect to the cloud at loopback port `port`, over the emulated link if one is given."""
        return self.connected_to(Address("127.0.0.1", port, emulate=emulate))

    @asynccontextmanager
    async def connected_to(self, address: Address) -> AsyncIterator[RealArena]:
        """Yield an arena of this side and the cloud at `address`; DragonError if unreachable."""
        async with connected(Loaded(self.settings, self.model, self.library), address) as device:
            yield RealArena(device.side, device.connectors)


@contextmanager
def sample_pair(model: str, *options: str, **settings: Any) -> Iterator[tuple[LoadedSide, int]]:
    """Yield a device, and the port of a cloud in a process of its own; both have sample documents.

    Both sides have the `settings`; the cloud's command also has the `options`.
    """
    device = LoadedSide.load(sample_settings("device", model, **settings))
    complete_library(sample_settings("cloud", model, **settings), device.model)
    command = [f"--documents={bundled.documents('cloud')}", *options]
    with cloud_process(*command, model=model, within=environment(settings)) as cloud:
        # The indexes are complete: others only open them.
        yield device, cloud.wait_ready()


def environment(settings: Mapping[str, Any]) -> list[str]:
    """Return an `env` command that sets a variable DRAGONRT_NAME for each setting but None."""
    given = [(name.upper(), value) for name, value in settings.items() if value is not None]
    return ["env", *(f"DRAGONRT_{name}={value}" for name, value in given)]
