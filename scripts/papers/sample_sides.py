"""A side that is loaded once and connected again and again; the sample documents' pair."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Self

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.experiments.comparison import connected, sample_settings
from dragonrt.link.stream import Stream
from dragonrt.node.endpoints import Address
from dragonrt.node.library import Library
from dragonrt.node.process import complete_library, load_model
from dragonrt.node.side_settings import SideSettings
from dragonrt.side import Precision
from retrieval import Progress
from scripts.papers.arena import RealArena

__all__ = ["LoadedSide", "sample_pair", "sample_settings"]


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
        on_progress: Callable[[Progress], None] = lambda now: None,
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
        on_progress: Callable[[Progress], None] = lambda now: None,
        *,
        kv: bool = True,
    ) -> Self:
        """The same where the model is there already."""
        library = complete_library(settings, model, on_progress, kv=kv)
        if library is None:
            raise DragonError("an experiment's side needs documents or an index of them")
        return cls(settings, model, library)

    def connected(
        self, port: int, emulate: Callable[[Stream], Stream] | None = None
    ) -> AbstractAsyncContextManager[RealArena]:
        """Connected to the cloud on that loopback port, perhaps over an emulated link."""
        return self.connected_to(Address("127.0.0.1", port, emulate=emulate))

    @asynccontextmanager
    async def connected_to(self, address: Address) -> AsyncIterator[RealArena]:
        """Connected to the cloud at that address. Raises DragonError if it cannot be."""
        async with connected(self.settings, self.model, self.library, address) as device:
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
