"""Faults of a simulated connection as values, and the streams and link model that apply them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from typing_extensions import override

from dragonrt.errors import LinkError
from dragonrt.link.models import LinkModel
from dragonrt.link.stream import Layer, Stream
from dragonrt.side import Side


@dataclass(frozen=True, slots=True)
class Cut:
    """A fault: the connection ends for good, in the middle of whatever is under way.

    It ends once `side` has written `after_bytes` bytes (the rest of that write is lost), or has
    written `after_writes` times (a message is one write, so this cuts between messages), or
    `after_s` seconds after it began. `reset` loses what has not been received yet, as a reset of
    TCP does; otherwise the other side first receives all that was written.
    """

    side: Side = "device"
    after_bytes: int | None = None
    after_writes: int | None = None
    after_s: float | None = None
    reset: bool = True


@dataclass(frozen=True, slots=True)
class Stall:
    """A fault: from second `start_s` of a connection, nothing arrives for `length_s` seconds."""

    start_s: float
    length_s: float


@dataclass(frozen=True, slots=True)
class HalfOpen:
    """A fault: after `after_s` seconds the `deaf` sides receive nothing, not even the end.

    What these sides write still arrives, so only a timeout finds the fault.
    """

    deaf: tuple[Side, ...]
    after_s: float


Fault: TypeAlias = Cut | Stall | HalfOpen


class StallingLink(LinkModel):
    """A LinkModel with a Stall: what would arrive during the stall arrives when the stall ends."""

    def __init__(self, stall: Stall | None, **link: Any) -> None:
        super().__init__(**link)
        self._stall = stall

    @override
    def arrivals(self, now_s: float, size: int) -> list[tuple[float, int]]:
        packets = super().arrivals(now_s, size)
        if self._stall is None:
            return packets
        start_s, end_s = self._stall.start_s, self._stall.start_s + self._stall.length_s
        return [(end_s if start_s <= at < end_s else at, packet) for at, packet in packets]


class CutStream(Layer):
    """A Stream over one side's `stream` that ends at the fault `cut`, and then calls `on_cut`."""

    def __init__(self, stream: Stream, cut: Cut, on_cut: Callable[[], None] = lambda: None) -> None:
        super().__init__(stream)
        self._cut = cut
        self._on_cut = on_cut
        self._bytes = self._writes = 0
        self._over = False
        self._timer: asyncio.TimerHandle | None = None
        if cut.after_s is not None:
            self._timer = asyncio.get_running_loop().call_later(cut.after_s, self._end)

    @override
    async def receive(self) -> bytes:
        return await self._stream.receive()

    @override
    def write(self, data: bytes) -> None:
        if self._over:
            return
        cut = self._cut
        if cut.after_writes is not None and self._writes == cut.after_writes:
            self._end()
        elif cut.after_bytes is not None and self._bytes + len(data) > cut.after_bytes:
            self._stream.write(data[: cut.after_bytes - self._bytes])
            self._end()
        else:
            self._bytes += len(data)
            self._writes += 1
            self._stream.write(data)

    @override
    def close(self) -> None:
        self._leave()
        super().close()

    @override
    def abort(self) -> None:
        self._leave()
        super().abort()

    def _end(self) -> None:
        self._on_cut()
        if self._cut.reset:
            self.abort()
        else:
            self.close()

    def _leave(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()


class DeafStream(Layer):
    """A Stream over `stream` that receives nothing from `after_s` seconds after its creation on."""

    def __init__(self, stream: Stream, after_s: float) -> None:
        super().__init__(stream)
        self._loop = asyncio.get_running_loop()
        self._deaf_s = self._loop.time() + after_s
        self._closed = asyncio.Event()

    @override
    async def receive(self) -> bytes:
        try:
            data = await self._stream.receive()
        except LinkError:
            if self._loop.time() < self._deaf_s:
                raise
        else:
            if self._loop.time() < self._deaf_s:
                return data
        await self._closed.wait()
        return b""

    @override
    def write(self, data: bytes) -> None:
        self._stream.write(data)

    @override
    def close(self) -> None:
        self._closed.set()
        super().close()

    @override
    def abort(self) -> None:
        self._closed.set()
        super().abort()


@dataclass(frozen=True, slots=True)
class Schedule:
    """The plan of a simulated run: link, speeds, and faults. Equal schedules give equal runs.

    `faults` has one entry for each connection that a device makes, in order; connections after the
    last entry have no fault. The times are means: each forward, preparation and message draws its
    own by `seed`. `bandwidth` is in bit/s.
    """

    seed: int
    latency_s: float = 0.0
    jitter_s: float = 0.0
    bandwidth: float | None = None
    device_decode_s: float = 0.02
    cloud_decode_s: float = 0.02
    device_prepare_s: float = 0.0
    cloud_prepare_s: float = 0.0
    faults: tuple[Fault | None, ...] = ()
