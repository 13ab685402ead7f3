"""A side that is loaded once and connected again and again; the sample documents' pair."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Self

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.link.stream import Stream
from dragonrt.node.connections.addresses import Address
from dragonrt.node.process.composition import complete_library, load_model
from dragonrt.node.process.library import Library
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.cloud_process import cloud_process
from dragonrt.service.comparison import connected
from dragonrt.service.comparison import sample_settings as sample_settings
from scripts.lab.arena import RealArena


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
        async with connected(self.settings, self.model, self.library, address) as device:
            yield RealArena(device.side, device.connectors)


@contextmanager
def sample_pair(
    model: str, *options: str, **settings: Any
) -> Iterator[tuple[LoadedSide, int, int]]:
    """Yield a device with its sample documents; a cloud's port, and its process.

    Both sides have these settings; the cloud has the options, too.
    """
    device = LoadedSide.load(sample_settings("device", model, **settings))
    complete_library(sample_settings("cloud", model, **settings), device.model)
    command = [f"--documents={bundled.documents('cloud')}", *options]
    with cloud_process(*command, model=model, within=environment(settings)) as cloud:
        # The indexes are complete: others only open them.
        yield device, cloud.wait_ready(), cloud.pid


def environment(settings: Mapping[str, Any]) -> list[str]:
    """Return the command within which a side has these settings, options or not, but None."""
    given = [(name.upper(), value) for name, value in settings.items() if value is not None]
    return ["env", *(f"DRAGONRT_{name}={value}" for name, value in given)]
