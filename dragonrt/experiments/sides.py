"""A device with documents that is connected to one cloud; the sample documents of each side."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.modes.settings import DragonSettings
from dragonrt.node import main as programs
from dragonrt.node.addresses import Member
from dragonrt.node.endpoints import Address
from dragonrt.node.library import Library
from dragonrt.node.side_settings import SideSettings
from dragonrt.side import Precision, Side


def sample_settings(
    side: Side, model: str = bundled.models()[0], dtype: Precision = "auto"
) -> SideSettings:
    """Return the settings of a side with its sample documents, as another process has them."""
    return SideSettings(side, model=model, dtype=dtype, documents=(bundled.documents(side),))


@asynccontextmanager
async def connected(
    settings: SideSettings, model: LanguageModel, library: Library | None, address: Address
) -> AsyncIterator[programs.Device]:
    """Yield a device connected to the cloud at `address`. Raises DragonError if it cannot be."""
    cloud = Member("cloud", address)
    async with programs.device(settings, model, library, [cloud], DragonSettings()) as device:
        if not device.connectors["cloud"].connected:
            raise DragonError(device.connectors["cloud"].absence)
        yield device
