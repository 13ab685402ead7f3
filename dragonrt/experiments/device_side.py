"""The device of an experiment: this process, its model and documents loaded once."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Self

from dragonrt import bundled
from dragonrt.language.model import LanguageModel
from dragonrt.link.stream import Stream
from dragonrt.runtime import main as programs
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.endpoints import Address
from dragonrt.runtime.library import Library
from dragonrt.runtime.local_side import LocalSide
from dragonrt.runtime.process import SideSettings, open_library
from dragonrt.side import Side
from retrieval import Progress


def sample_settings(side: Side, model: str = bundled.models()[0]) -> SideSettings:
    """The settings of a side with its sample documents, as the other process has them."""
    return SideSettings(side, model=model, documents=(bundled.documents(side),))


@dataclass(frozen=True, slots=True)
class DeviceSide:
    """A loaded device that may be connected again and again, to different clouds and links."""

    settings: SideSettings
    model: LanguageModel
    library: Library | None

    @classmethod
    def load(
        cls, settings: SideSettings, on_progress: Callable[[Progress], None] | None = None
    ) -> Self:
        """Load the model and bring the index up to date. Raises DragonError or RetrievalError."""
        model = LanguageModel.load(settings.model, settings.device, settings.dtype)
        library, _ = open_library(settings, model, on_progress)
        return cls(settings, model, library)

    def connected(
        self, port: int, emulate: Callable[[Stream], Stream] | None = None
    ) -> AbstractAsyncContextManager[tuple[LocalSide, Connector]]:
        """Connected to the cloud on that loopback port, perhaps over an emulated link."""
        return self.connected_to(Address("127.0.0.1", port, emulate=emulate))

    def connected_to(
        self, address: Address
    ) -> AbstractAsyncContextManager[tuple[LocalSide, Connector]]:
        """Connected to the cloud at that address. Raises DragonError if it cannot be."""
        return programs.device(self.settings, self.model, self.library, address)
