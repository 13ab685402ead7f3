"""Simulated streams: a pair in one process without delay, and the emulation of a slower link.

One end emulates both directions of a slower link, by delaying bytes that it writes or receives.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from typing_extensions import override

from dragonrt.errors import LinkError
from dragonrt.link.models import LinkModel
from dragonrt.link.stream import HIGH_WATER, BufferedStream, Stream


def memory_streams(names: tuple[str, str] = ("device", "cloud")) -> tuple[Stream, Stream]:
    """Return the two ends, one for each side of `names`, of a stream in memory without delay."""
    first, second = _MemoryStream(names[1]), _MemoryStream(names[0])
    first._peer, second._peer = second, first
    return first, second


class _MemoryStream(BufferedStream):
    """One end of the pair; written bytes go straight into the other end's inbox."""

    _peer: "_MemoryStream"

    def __init__(self, peer_name: str) -> None:
        super().__init__(peer_name, self._emptied)

    @override
    def write(self, data: bytes) -> None:
        if not self._over:
            self._peer._feed(bytes(data))
            if self._peer._unread > HIGH_WATER:
                self._writable.clear()

    @override
    def close(self) -> None:
        self._stop()

    @override
    def abort(self) -> None:
        self._stop(LinkError(f"the stream to {self._peer.peer_name} broke"))

    def _stop(self, error: LinkError | None = None) -> None:
        """End both ends; with an error the other end loses what it has not read."""
        self._end_reading(discard=True)
        if not self._over:
            self._peer._end_reading(error, discard=error is not None)
            for end in (self, self._peer):
                end._over = True
                end._writable.set()

    def _emptied(self) -> None:
        self._peer._writable.set()


MAX_IN_FLIGHT = 1024 * 1024  # bytes in each direction


class EmulatedStream(BufferedStream):
    """A Stream over `stream` that delays written and received bytes, each by a LinkModel."""

    def __init__(self, stream: Stream, outgoing: LinkModel, incoming: LinkModel) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(stream.peer_name, self._balance)
        self._stream = stream
        self._outgoing = _DelayLine(loop, outgoing, self._departed)
        self._incoming = _DelayLine(loop, incoming, self._arrived)
        self._readable = asyncio.Event()
        self._balance()
        self._error: LinkError | None = None
        self._ended = asyncio.Event()
        self._reader = loop.create_task(self._read(), name=f"link from {stream.peer_name}")

    @override
    def write(self, data: bytes) -> None:
        if data and not self._over:
            self._outgoing.send(bytes(data))
            self._balance()

    @override
    async def drain(self) -> None:
        await super().drain()
        await self._stream.drain()

    @override
    def close(self) -> None:
        self._end_reading(discard=True)
        self._incoming.clear()
        self._reader.cancel()
        if not self._over:
            self._over = True
            self._writable.set()
            self._outgoing.send(b"")  # the end, behind the last byte

    @override
    def abort(self) -> None:
        self._over = True
        self.close()
        self._outgoing.clear()
        self._stream.abort()
        self._end()

    @override
    async def wait_closed(self) -> None:
        await self._ended.wait()
        await asyncio.wait([self._reader])
        await self._stream.wait_closed()

    async def _read(self) -> None:
        """Receive bytes at once, so that their delay starts on arrival."""
        try:
            while data := await self._stream.receive():
                self._incoming.send(data)
                self._balance()
                await self._readable.wait()
        except LinkError as error:
            self._error = error
        self._incoming.send(b"")

    def _arrived(self, data: bytes) -> None:
        if data:
            self._feed(data)
        else:
            self._end_reading(self._error)
            self._over = True
            self._outgoing.clear()  # there is nobody to take it in
            self._departed(b"")

    def _departed(self, data: bytes) -> None:
        if data:
            self._stream.write(data)
            self._balance()
        else:
            self._stream.close()
            self._end()

    def _end(self) -> None:
        self._ended.set()
        self._writable.set()

    def _balance(self) -> None:
        """Open each direction while few bytes are under way or unread."""
        unread = self._incoming.in_flight + self._unread
        for gate, size in ((self._readable, unread), (self._writable, self._outgoing.in_flight)):
            if size <= MAX_IN_FLIGHT:
                gate.set()
            else:
                gate.clear()


class _DelayLine:
    """Bytes under way in one direction; `deliver` gets them in order, and b"" at the end."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, model: LinkModel, deliver: Callable[[bytes], None]
    ) -> None:
        self.in_flight = 0
        self._loop = loop
        self._model = model
        self._deliver = deliver
        self._start = loop.time()
        self._packets: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def send(self, data: bytes) -> None:
        """Start the delay of `data`; b"" is the end, after everything."""
        offset = 0
        for arrival, size in self._model.arrivals(self._loop.time() - self._start, len(data)):
            self._packets.append((self._start + arrival, data[offset : offset + size]))
            offset += size
        self.in_flight += len(data)
        self._set_timer()

    def clear(self) -> None:
        self._packets.clear()
        self.in_flight = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if self._timer is None and self._packets:
            self._timer = self._loop.call_at(self._packets[0][0], self._deliver_due)

    def _deliver_due(self) -> None:
        self._timer = None
        # The first packet is due despite rounding, with those of the same moment.
        now = max(self._loop.time(), self._packets[0][0])
        due = []
        while self._packets and self._packets[0][0] <= now:
            due.append(self._packets.popleft()[1])
        data = b"".join(due)
        self.in_flight -= len(data)
        self._set_timer()
        if data:
            self._deliver(data)
        if not due[-1]:
            self._deliver(b"")
