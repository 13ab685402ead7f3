"""What goes wrong on a link, as values: a fault, and the stream or the link that suffers it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from dragonrt.errors import LinkError
from dragonrt.link.models import LinkModel
from dragonrt.link.stream import Stream
from dragonrt.side import Side


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends for good, in the middle of whatever is under way.

    It ends once `side` has written `after_bytes` bytes (the rest of that write is lost), or has
    written `after_writes` times (a message is one write, so this cuts between messages), or
    `after_s` seconds after it was made. `reset` loses what has not been received yet, as a reset
    does; otherwise the other side first receives all that was written.
    """

    side: Side = "device"
    after_bytes: int | None = None
    after_writes: int | None = None
    after_s: float | None = None
    reset: bool = True


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing arrives, in either direction, from `start_s` on for `length_s` seconds."""

    start_s: float
    length_s: float


@dataclass(frozen=True, slots=True)
class HalfOpen:
    """From `after_s` seconds after the connection was made `deaf` sides hear nothing any more.

    Not even its end, so only timeouts finds that out, and what they write arrives as before.
    """

    deaf: tuple[Side, ...]
    after_s: float


Fault: TypeAlias = Cut | Stall | HalfOpen


class StallingLink(LinkModel):
    """A LinkModel on which whatever would arrive during a stall arrives at its end."""

    def __init__(self, stall: Stall | None, **link: Any) -> None:
        super().__init__(**link)
        self._stall = stall

    def arrivals(self, now_s: float, size: int) -> list[tuple[float, int]]:
        packets = super().arrivals(now_s, size)
        if self._stall is None:
            return packets
        start_s, end_s = self._stall.start_s, self._stall.start_s + self._stall.length_s
        return [(end_s if start_s <= at < end_s else at, packet) for at, packet in packets]


class CutStream:
    """A Stream over `stream` that suffers `cut`; made inside a running loop.

    `on_cut` hears when it is cut.
    """

    def __init__(self, stream: Stream, cut: Cut, on_cut: Callable[[], None] = lambda: None) -> None:
        self._stream = stream
        self._cut = cut
        self._on_cut = on_cut
        self._bytes = self._writes = 0
        self._over = False
        self._timer: asyncio.TimerHandle | None = None
        if cut.after_s is not None:
            self._timer = asyncio.get_running_loop().call_later(cut.after_s, self._end)

    @property
    def peer_name(self) -> str:
        return self._stream.peer_name

    async def receive(self) -> bytes:
        return await self._stream.receive()

    def write(self, data: bytes) -> None:
        if self._over:
            return
        cut = self._cut
        if cut.after_writes is not None and self._writes == cut.after_writes:
            self._end()
            return
        if cut.after_bytes is not None and self._bytes + len(data) > cut.after_bytes:
            self._stream.write(data[: cut.after_bytes - self._bytes])
            self._end()
            return
        self._bytes += len(data)
        self._writes += 1
        self._stream.write(data)

    async def drain(self) -> None:
        await self._stream.drain()

    def close(self) -> None:
        self._leave()
        self._stream.close()

    def abort(self) -> None:
        self._leave()
        self._stream.abort()

    async def wait_closed(self) -> None:
        await self._stream.wait_closed()

    def _end(self) -> None:
        self._leave()
        self._on_cut()
        if self._cut.reset:
            self._stream.abort()
        else:
            self._stream.close()

    def _leave(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()


class DeafStream:
    """A Stream over `stream` that hears nothing from `after_s` on, until it is closed here."""

    def __init__(self, stream: Stream, after_s: float) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._deaf_s = self._loop.time() + after_s
        self._closed = asyncio.Event()

    @property
    def peer_name(self) -> str:
        return self._stream.peer_name

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

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    async def drain(self) -> None:
        await self._stream.drain()

    def close(self) -> None:
        self._closed.set()
        self._stream.close()

    def abort(self) -> None:
        self._closed.set()
        self._stream.abort()

    async def wait_closed(self) -> None:
        await self._stream.wait_closed()
