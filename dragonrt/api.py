"""The Python interface: connect a device, ask it, serve a cloud.

Settings are named like options: `--key-file` is `key_file`; docs/reference.md lists them.
Everything runs in the caller's event loop; models and retrieval have threads of their own. Many
devices and clouds may live in one loop. Errors are DragonError.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

from typing_extensions import override

from dragonrt.modes import DEFAULT_MODE
from dragonrt.modes.question import Question
from dragonrt.node.connections.addresses import LinkSettings, NetworkSettings
from dragonrt.node.connections.admission import CloudLimits
from dragonrt.node.process import programs
from dragonrt.node.process.composition import Loaded, complete_library, load_model
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.chat import Chat
from dragonrt.service.setup import CloudSetup, DeviceSetup, entry_named
from dragonrt.settings import Entry, SettingError, assemble_known, entries
from retrieval import Progress

Places = str | Path | Iterable[str | Path]
OnLine = Callable[[str], None]
OnProgress = Callable[[Progress], None]
OWN = (SideSettings, NetworkSettings, LinkSettings)


class Device(Chat):
    """The conversation that `connect` yields. Its `close` aborts the answers of all its chats."""

    def __init__(self, device: programs.Device, setup: DeviceSetup, stops: Iterable[str]) -> None:
        super().__init__(device, setup.question, setup.seed, stops)
        self._chats = WeakSet[Chat]()  # a chat with an answer under way is held by its task

    def chat(self) -> Chat:
        """Return a new chat on this device with the same settings, and without history."""
        self._chats.add(made := Chat(self.device, self.question, self.seed, self.stops))
        return made

    @override
    async def close(self) -> None:
        await asyncio.gather(super().close(), *(each.close() for each in self._chats))


@asynccontextmanager
async def connect(
    host: str = "127.0.0.1",
    *,
    documents: Places = (),
    key: str | Path | None = None,
    mode: str = DEFAULT_MODE,
    workers: Iterable[str] = (),
    stop: Iterable[str] = (),
    on_notice: OnLine = lambda line: None,
    on_progress: OnProgress = lambda now: None,
    **settings: Any,
) -> AsyncIterator[Device]:
    """Load a model and index `documents`, then yield a device connected to a cloud.

    Args:
        host: HOST or HOST:PORT of the cloud.
        documents: files and directories; changed files are indexed first.
        key: the file with the shared key, made by `dragonrt keys new`; None for certificates or a
            cloud on this machine.
        mode: a name of `--mode`, such as "dragon", which mixes the documents of both sides.
        workers: in mode federated, each HOST:PORT or HOST:PORT=WEIGHT (in the mixture).
        stop: texts that end an answer.
        on_notice: called with a line for the user, such as that the cloud is away, or back.
        on_progress: called in another thread, with the bytes indexed so far and of all documents.
        settings: options of `dragonrt device` by name, such as disclose="answer".

    Raises DragonError for a wrong setting, or a cloud that refuses this device for ever.
    """
    own, answers = _given(settings, OWN, (Question, entry_named(mode).settings))
    own |= _own(documents, key) | {"host": host}
    setup = DeviceSetup.of(mode, own, answers, tuple(workers))
    given = await _loaded(setup, on_notice, on_progress), setup.others, setup.how
    async with programs.device(*given, lambda notice: on_notice(notice.text)) as connected:
        device = Device(connected, setup, stop)
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
    on_progress: OnProgress = lambda now: None,
    **settings: Any,
) -> AsyncIterator[int]:
    """Load a model and index `documents`, then serve as a cloud; yield the port it listens on.

    At the end of the context the answers under way may finish, for a limited time.

    Args:
        documents: files and directories; changed files are indexed first.
        key: the file with the shared key. Without key or certificates, local devices only.
        on_notice: called with a line when a device joins, leaves or is refused.
        on_progress: called in another thread, with the bytes indexed so far and of all documents.
        settings: options of `dragonrt cloud` by name, such as port=7070 (0: any free one).

    Raises DragonError for a wrong setting, or a port that is taken.
    """
    own, limits = _given(settings, OWN, (CloudLimits,))
    setup = CloudSetup.of(own | _own(documents, key))
    loaded = await _loaded(setup, on_notice, on_progress)
    bounds = assemble_known(CloudLimits, limits)
    async with programs.cloud(loaded, setup.address, on_notice, bounds) as cloud:
        yield cloud.port


async def _loaded(
    setup: DeviceSetup | CloudSetup, on_notice: OnLine, on_progress: OnProgress
) -> Loaded:
    for line in setup.warnings:
        on_notice(line)
    model = await asyncio.to_thread(load_model, setup.side)
    library = await asyncio.to_thread(complete_library, setup.side, model, on_progress, kv=False)
    return Loaded(setup.side, model, library)


def _own(documents: Places, key: str | Path | None) -> dict[str, Any]:
    places = [documents] if isinstance(documents, str | Path) else documents
    found: dict[str, Any] = {"documents": tuple(Path(each).expanduser() for each in places)}
    return found if key is None else found | {"key_file": Path(key).expanduser()}


def _given(settings: Mapping[str, Any], *groups: Iterable[type]) -> list[dict[str, Any]]:
    """Return the values of each group of classes, by their fields' names.

    Raises SettingError for an unknown name.
    """
    unknown, found = set(settings), list[dict[str, Any]]()
    for classes in groups:
        found.append(values := {})
        for entry in (entry for cls in classes for entry in entries(cls)):
            name = entry.about.option or entry.name
            if name in settings:
                values[entry.name] = _typed(entry, settings[name])
                unknown.discard(name)
    if unknown:
        raise SettingError(f"there is no setting {min(unknown)!r} here", min(unknown))
    return found


def _typed(entry: Entry, value: Any) -> Any:
    if isinstance(value, str) and entry.type in (Path, Path | None):
        return Path(value).expanduser()
    return tuple(value) if isinstance(value, list) else value
