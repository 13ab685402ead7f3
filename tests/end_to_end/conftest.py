"""A real cloud in its own process, and devices in this one, over loopback TCP."""

import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from dragonrt.bundled import documents
from dragonrt.chat.conversation import Conversation, Reply
from dragonrt.experiments.cloud_process import CloudProcess, cloud_process
from dragonrt.language.model import LanguageModel
from dragonrt.link.stream import Stream
from dragonrt.runtime import main as programs
from dragonrt.runtime.endpoints import Address
from dragonrt.runtime.library import Library
from dragonrt.runtime.modes.dragon import Answer, OnLoss, beginning
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.process import SideSettings
from dragonrt.sampling.samplers import Sampler
from retrieval import Embedder

PLAN = Plan(seed=0, sampler=Sampler(temperature=0.0), codec="topp:0.95", max_tokens=16)


class Device:
    """A device that is connected to a cloud; every question begins a new conversation."""

    def __init__(self, side: programs.LocalSide, connector: programs.Connector) -> None:
        self.side = side
        self.connector = connector

    def conversation(
        self, plan: Plan = PLAN, on_loss: OnLoss = "alone"
    ) -> Conversation[Plan, Answer]:
        begin = beginning(self.side, self.connector, on_loss)
        return Conversation(self.side.model, plan, begin, plan.seed)

    async def ask(
        self,
        question: str,
        plan: Plan = PLAN,
        on_piece: Callable[[str, object], None] = lambda text, decision: None,
    ) -> Reply[Answer]:
        return await self.conversation(plan).ask(question, on_piece)


DeviceAt = Callable[..., AbstractAsyncContextManager[Device]]


@pytest.fixture(scope="session")
def model() -> LanguageModel:
    return LanguageModel.load("dragon-small", "cpu")


@pytest.fixture(scope="session")
def library(model: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The device's documents, indexed."""
    directory = tmp_path_factory.mktemp("device") / "index"
    made, _ = Library.open(directory, [documents("device")], model, Embedder.load())
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


@pytest.fixture(scope="session")
def device_at(model: LanguageModel, library: Library) -> DeviceAt:
    """Makes a device connected to the cloud at a port."""

    @asynccontextmanager
    async def connected(
        port: int,
        *,
        key: bytes | None = None,
        tls: ssl.SSLContext | None = None,
        emulate: Callable[[Stream], Stream] | None = None,
        documents: Library | None = library,
    ) -> AsyncIterator[Device]:
        address = Address("127.0.0.1", port, key, tls, emulate)
        settings = SideSettings("device", device="cpu")
        async with programs.device(settings, model, documents, address) as (side, connector):
            yield Device(side, connector)

    return connected
