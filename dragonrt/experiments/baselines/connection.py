"""A baselines' cloud in a second process, and the device's connection to it."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from dragonrt import bundled
from dragonrt.experiments.baselines.device import BaselineDevice
from dragonrt.experiments.baselines.messages import Channel
from dragonrt.experiments.baselines.server import HOST, baseline_side
from dragonrt.experiments.cloud_process import CloudProcess, listening_process
from dragonrt.link.stream import Stream, connect
from dragonrt.runtime.local_side import LocalSide


@contextmanager
def baselines_process(model: str) -> Iterator[CloudProcess]:
    """The cloud with its sample documents, until the context ends."""
    module = "dragonrt.experiments.baselines.server"
    with listening_process(module, str(bundled.documents("cloud")), model) as process:
        yield process


@asynccontextmanager
async def connected_baselines(
    side: LocalSide, port: int, emulate: Callable[[Stream], Stream] | None
) -> AsyncIterator[BaselineDevice]:
    """This device connected to the baselines' cloud on that loopback port, until the context ends.

    Raises LinkError or BaselineError.
    """
    stream: Stream = await connect(HOST, port)
    channel = Channel(emulate(stream) if emulate is not None else stream)
    try:
        await channel.greet(side.model.document_fingerprint)
        yield BaselineDevice(baseline_side(side), channel)
    finally:
        await channel.close()
