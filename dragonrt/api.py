"""The Python interface: connect a device, ask it, serve a cloud.

A setting is what the command line calls it, `--key-file` as `key_file`; docs/reference.md lists
them. Everything runs in the caller's event loop; models and retrieval have threads of their own.
Many devices and clouds may live in one loop. Errors are DragonError.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dragonrt.modes.question import Question, Turn
from dragonrt.modes.registry import DEFAULT_MODE
from dragonrt.node.connections.addresses import LinkSettings, NetworkSettings
from dragonrt.node.connections.admission import CloudLimits
from dragonrt.node.process import programs
from dragonrt.node.process.composition import complete_library, load_model
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.conversation import Conversation
from dragonrt.service.reply import Reply, cited_json, mark_json
from dragonrt.service.setup import CloudSetup, DeviceSetup, entry_named
from dragonrt.settings import Entry, SettingError, entries, picked
from dragonrt.side import Side
from dragonrt.traces.events import Noticed, TokenDecided
from retrieval import Progress

Places = str | Path | Iterable[str | Path]
OnLine = Callable[[str], None]
OWN = (SideSettings, NetworkSettings, LinkSettings)


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that one token completed; `device_share` from 0 to 1 is the device's part in it."""

    text: str
    device_share: float


@dataclass(frozen=True, slots=True)
class Source:
    """A document that an answer rests on: the `sentence` read, and its evidence in `bits`."""

    side: Side
    file: str
    sentence: str
    bits: float


@dataclass(frozen=True)
class Answer:
    """An answer, made of what the command line prints with `--json`."""

    _reply: Reply

    @property
    def text(self) -> str:
        """Return the whole text."""
        return self._reply.text

    @property
    def finish(self) -> str:
        """Return why it ended: stop, length or cancelled."""
        return self._reply.answer.finish.value

    @property
    def sources(self) -> list[Source]:
        """Return the documents that it rests on, this side's first; none for a refusal."""
        found = ((side, cited_json(side, each)) for side, each in self._reply.sources)
        return [Source(side, each["file"], each["sentence"], each["bits"]) for side, each in found]

    @property
    def marks(self) -> list[dict[str, Any]]:
        """Return the words that a source moved: start_index and end_index in characters, file."""
        return [mark_json(each) for each in self._reply.marks]

    @property
    def ledger(self) -> dict[str, Any]:
        """Return what left this side for it (SPEC 1.10): bytes, tokens, bits of each file."""
        return self._reply.ledger()

    @property
    def statistics(self) -> dict[str, Any]:
        """Return times, acceptances and bytes; None for what was not measured."""
        return self._reply.statistics()

    @property
    def notices(self) -> list[Noticed]:
        """Return what the user should know, such as that the cloud was away: `kind` and `text`."""
        return self._reply.answer.notices

    @property
    def parts(self) -> list["Answer"]:
        """Return an answer for each part of the question."""
        return [Answer(each) for _, each in self._reply.parts]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the objects that `--json` prints, one for each part of the question."""
        return [each.to_json() for _, each in self._reply.parts]


class Stream:
    """The pieces of an answer under way: iterate over it, or await it for the Answer.

    An answer that nobody reads to its end goes on until `stop`, or until its device is closed.
    """

    def __init__(self, task: "asyncio.Task[Answer]", pieces: "asyncio.Queue[Piece | None]") -> None:
        self._task, self._pieces = task, pieces

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        piece = None if self._task.done() and self._pieces.empty() else await self._pieces.get()
        if piece is not None:
            return piece
        await self._task  # raises what ended it
        raise StopAsyncIteration

    def __await__(self) -> Generator[Any, None, Answer]:
        return self._task.__await__()


class Chat:
    """Questions and answers in a row, each of which sees those before it.

    Questions that are asked at the same time are answered one after another.
    """

    def __init__(self, device: programs.Device, setup: DeviceSetup, stops: tuple[str, ...]) -> None:
        self._talk = Conversation(device, setup.question, setup.seed, stops)
        self._seed = setup.seed
        self._turn = asyncio.Lock()
        self._asking: set[asyncio.Task[Answer]] = set()

    @property
    def history(self) -> list[Turn]:
        """Return the turns so far: questions and answers."""
        return list(self._talk.history)

    async def ask(self, question: str, *, seed: int | None = None) -> Answer:
        """Return the answer. Cancelling it ends the answer. Raises DragonError."""
        return await self._answer(question, seed, lambda piece: None)

    def stream(self, question: str, *, seed: int | None = None) -> Stream:
        """Begin an answer and return its pieces as they are decided."""
        pieces: asyncio.Queue[Piece | None] = asyncio.Queue()  # no longer than the answer

        async def answer() -> Answer:
            try:
                return await self._answer(question, seed, pieces.put_nowait)
            finally:
                pieces.put_nowait(None)

        task = asyncio.create_task(answer(), name="answer")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return Stream(task, pieces)

    def stop(self) -> None:
        """End the answer under way with what is decided of it."""
        self._talk.stop()

    async def close(self) -> None:
        """Cancel what is being answered, and wait until it has ended."""
        asking = list(self._asking)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _answer(self, text: str, seed: int | None, emit: Callable[[Piece], None]) -> Answer:
        def piece(words: str, decision: TokenDecided) -> None:
            emit(Piece(words, decision.share))

        async with self._turn:
            self._talk.seed = self._seed if seed is None else seed
            return Answer(await self._talk.ask(text, piece))


class Device(Chat):
    """A connected device, and its first chat."""

    def __init__(self, device: programs.Device, setup: DeviceSetup, stops: tuple[str, ...]) -> None:
        super().__init__(device, setup, stops)
        self._chats: list[Chat] = []
        self._more = device, setup, stops

    def chat(self) -> Chat:
        """Return a new chat, which knows nothing of the others."""
        self._chats.append(made := Chat(*self._more))
        return made

    async def close(self) -> None:
        for each in self._chats:
            await each.close()
        await super().close()


@asynccontextmanager
async def connect(
    *hosts: str,
    documents: Places = (),
    key: str | Path | None = None,
    mode: str = DEFAULT_MODE,
    workers: Iterable[str] = (),
    stop: Iterable[str] = (),
    on_notice: OnLine = lambda line: None,
    on_progress: Callable[[Progress], None] = lambda now: None,
    **settings: Any,
) -> AsyncIterator[Device]:
    """Load a model and index `documents`, then yield a device connected to a cloud.

    Args:
        hosts: HOST or HOST:PORT of the cloud; of several any one answers. Default: this machine.
        documents: files and directories; changes are indexed first.
        key: the file with the shared key, as `dragonrt keys new` makes it.
        workers: HOST:PORT[=WEIGHT] of each, in mode federated.
        stop: texts that end an answer.
        on_notice: gets a line when the cloud is away, or back.
        on_progress: hears how far indexing is, in another thread.
        settings: of `dragonrt device` by their names, such as disclose="answer".

    Raises:
        DragonError: for a wrong setting, or a cloud that refuses this device for ever.
    """
    answered = (Question, entry_named(mode).settings)
    own = _given(OWN, settings) | _own(documents, key)
    values = _given(answered, settings)
    _check_known(settings, *OWN, *answered)
    setup = DeviceSetup.of(mode, own, values, tuple(workers), hosts)
    for line in setup.warnings:
        on_notice(line)
    model = await asyncio.to_thread(load_model, setup.side)
    library = await asyncio.to_thread(complete_library, setup.side, model, on_progress, kv=False)
    given = setup.side, model, library, setup.others, setup.how
    async with programs.device(*given, lambda notice: on_notice(notice.text)) as connected:
        device = Device(connected, setup, tuple(stop))
        try:
            yield device
        finally:
            await device.close()


@asynccontextmanager
async def serve_cloud(
    *,
    documents: Places = (),
    key: str | Path | None = None,
    on_notice: OnLine = lambda line: None,
    on_progress: Callable[[Progress], None] = lambda now: None,
    **settings: Any,
) -> AsyncIterator[int]:
    """Load a model and index `documents`, then yield the port at which a cloud serves devices.

    At the end answers under way are completed, within the timeouts.

    Args:
        documents: files and directories; changes are indexed first.
        key: the file with the shared key. Without one it listens on this machine only.
        on_notice: gets a line when a device joins, leaves or is refused.
        on_progress: hears how far indexing is, in another thread.
        settings: of `dragonrt cloud` by their names, such as port=7070 (0: any free one).

    Raises:
        DragonError: for a wrong setting, or a port that is taken.
    """
    own = _given(OWN, settings) | _own(documents, key)
    limits = picked(CloudLimits, _given((CloudLimits,), settings))
    _check_known(settings, *OWN, CloudLimits)
    setup = CloudSetup.of(own)
    for line in setup.warnings:
        on_notice(line)
    model = await asyncio.to_thread(load_model, setup.side)
    library = await asyncio.to_thread(complete_library, setup.side, model, on_progress, kv=False)
    async with programs.cloud(setup.side, model, library, setup.address, on_notice, limits) as (
        cloud
    ):
        yield cloud.port


def _own(documents: Places, key: str | Path | None) -> dict[str, Any]:
    places = [documents] if isinstance(documents, str | Path) else documents
    found: dict[str, Any] = {"documents": tuple(Path(each).expanduser() for each in places)}
    return found if key is None else found | {"key_file": Path(key).expanduser()}


def _given(classes: Iterable[type], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of these classes by their fields' names."""
    return {
        entry.name: _typed(entry, settings[name])
        for cls in classes
        for entry in entries(cls)
        if (name := _name(entry)) in settings
    }


def _name(entry: Entry) -> str:
    return entry.option.removeprefix("--").replace("-", "_")


def _typed(entry: Entry, value: Any) -> Any:
    if isinstance(value, str) and entry.type in (Path, Path | None):
        return Path(value).expanduser()
    return tuple(value) if isinstance(value, list) else value


def _check_known(settings: Mapping[str, Any], *classes: type) -> None:
    known = {_name(entry) for cls in classes for entry in entries(cls)}
    if unknown := sorted(settings.keys() - known):
        raise SettingError(f"there is no setting {unknown[0]!r} here", unknown[0])
