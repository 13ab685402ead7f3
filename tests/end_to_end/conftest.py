"""A real cloud in its own process, and devices in this one, over loopback TCP."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dragonrt.backends.mixture import RowWeights
from dragonrt.backends.model import LanguageModel
from dragonrt.bundled import documents
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.models import Jitter, LinkModel
from dragonrt.link.stream import Stream
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.node.connections.addresses import Address, Member
from dragonrt.node.connections.connector import Connector
from dragonrt.node.process import programs
from dragonrt.node.process.composition import Loaded, complete_library
from dragonrt.node.process.library import Library
from dragonrt.node.process.local_side import fitting_prompt
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.answer import Answer
from dragonrt.service.chat import Chat, News, OnNews
from dragonrt.service.cloud_process import CloudProcess, cloud_process
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import Record, TokenDecided

SHORT = Question(max_tokens=16)
BOTH = DragonSettings(codec="topp:0.95")


@dataclass(frozen=True, slots=True)
class Device:
    """A device that is connected to a cloud; every question begins a new conversation."""

    connected: programs.Device

    @property
    def connector(self) -> Connector:
        return self.connected.connectors["cloud"]

    def conversation(self, question: Question, how: Settings | None = None) -> Chat:
        device = self.connected
        if how is not None:
            device = replace(device, settings=how, resources=None)
        return Chat(device, question, question.seed)

    async def ask(
        self,
        prompt: str,
        question: Question = SHORT,
        how: Settings | None = None,
        on_news: OnNews = lambda news: None,
    ) -> Answer:
        return await self.conversation(question, how).ask(prompt, on_news=on_news)


DeviceAt = Callable[..., AbstractAsyncContextManager[Device]]


def counts(reply: Answer) -> AnswerCounts:
    """What happened in an answer."""
    return AnswerCounts.of(reply.decoded.records)


def decides(news: News, step: int) -> bool:
    """Whether the token of a step is decided now."""
    event = news.event if isinstance(news, Record) else None
    return isinstance(event, TokenDecided) and event.step == step


class Alone:
    """A model that answers by itself, without documents or any protocol, token by token."""

    def __init__(self, model: LanguageModel, question: Question) -> None:
        nothing_known = model.document_kv(())
        room = model.context_length - nothing_known.length - question.max_tokens
        prompt = fitting_prompt(model, question.prompt, question.history, room)
        self._sequence = model.rows([nothing_known], len(prompt) + question.max_tokens)
        self._rows = self._sequence.extend(prompt, prompt=True)

    @property
    def p(self) -> NDArray[np.float32]:
        """What it says next."""
        return self._rows.mixed(RowWeights([0.0]).logs)

    def take(self, token: int) -> None:
        self._rows = self._sequence.extend([token])


def slow_link(latency_s: float, jitter_s: float) -> Callable[[Stream], Stream]:
    """Puts so much delay in each direction around a stream."""

    def emulate(stream: Stream) -> Stream:
        up, down = (
            LinkModel(
                latency_s=latency_s, jitter=Jitter("uniform", jitter_s), seed=5, direction=direction
            )
            for direction in ("up", "down")
        )
        return EmulatedStream(stream, up, down)

    return emulate


def plain_environment() -> dict[str, str]:
    """The variables of a process that takes no settings from this one."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("DRAGONRT_")}
    return own | {"COLUMNS": "1000", "TERM": "dumb"}


@dataclass(slots=True)
class Recording:
    """What passed a proxy in both directions, and the port of the proxy."""

    port: int = 0
    up: bytearray = field(default_factory=bytearray)
    down: bytearray = field(default_factory=bytearray)
    connections: int = 0


@asynccontextmanager
async def recording_proxy(port: int) -> AsyncIterator[Recording]:
    """Pass bytes on to a loopback port, and keep them."""
    recording, flows = Recording(), set[asyncio.Task[None]]()

    async def flow(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                kept += data
                writer.write(data)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cloud_reader, cloud_writer = await asyncio.open_connection("127.0.0.1", port)
        recording.connections += 1
        flows.add(asyncio.create_task(flow(reader, cloud_writer, recording.up)))
        flows.add(asyncio.create_task(flow(cloud_reader, writer, recording.down)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        recording.port = server.sockets[0].getsockname()[1]
        yield recording
        await asyncio.gather(*flows)


@pytest.fixture(scope="session")
def device_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("device") / "index"


@pytest.fixture(scope="session")
def library(model: LanguageModel, device_index: Path) -> Library:
    """The device's documents, indexed."""
    settings = SideSettings("device", documents=(documents("device"),), index=device_index)
    made = complete_library(settings, model)
    assert made is not None
    return made


@pytest.fixture(scope="session")
def cloud_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cloud") / "index"


@pytest.fixture(scope="session")
def cloud(cloud_index: Path) -> Iterator[CloudProcess]:
    """One cloud for all tests that leave it as it was; the first start indexes its documents."""
    options = ("--documents", str(documents("cloud")), "--index", str(cloud_index))
    with cloud_process(*options) as process:
        process.wait_ready()
        yield process


@asynccontextmanager
async def connected_device(
    model: LanguageModel,
    library: Library | None,
    at: int | Address,
    how: Settings,
    trace: Path | None = None,
) -> AsyncIterator[Device]:
    """A device of that model, connected to one cloud: at a port of this machine, or an address."""
    address = at if isinstance(at, Address) else Address("127.0.0.1", at)
    loaded = Loaded(SideSettings("device", on="cpu", trace=trace), model, library)
    async with programs.device(loaded, [Member("cloud", address)], how) as device:
        yield Device(device)


@pytest.fixture(scope="session")
def device_at(model: LanguageModel, library: Library) -> DeviceAt:
    """Makes a device connected to the cloud at a port."""

    def connected(
        port: int,
        *,
        key: bytes | None = None,
        tls: ssl.SSLContext | None = None,
        emulate: Callable[[Stream], Stream] | None = None,
        documents: Library | None = library,
    ) -> AbstractAsyncContextManager[Device]:
        address = Address("127.0.0.1", port, key, tls, emulate)
        return connected_device(model, documents, address, BOTH)

    return connected
