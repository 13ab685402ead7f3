"""What a connection may take before anybody knows whose it is: places, and time.

uvicorn bounds how long a connection is idle between requests, and nothing else. Here each takes a
place before TLS or a key is asked for; requests come within bounds, and what is sent is taken in.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dragonrt.node.lobby import source_of

log = logging.getLogger(__name__)

PAUSE_S = 1.0
"""Between tries, where connections cannot be accepted."""
BUSY, LATE = b"503 Service Unavailable", b"408 Request Timeout"
REFUSAL = b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBounds:
    """How many connections there may be, and how long a client may take; seconds.

    A body has `body_s`, and one second more for each `bytes_per_s` that came. A client that takes
    nothing in of a response for `taken_in_s` is taken to be gone.
    """

    connections: int = 512
    of_address: int = 128
    headers_s: float = 10.0
    body_s: float = 30.0
    bytes_per_s: int = 64 * 1024
    taken_in_s: float = 30.0
    idle_s: int = 5

    def for_queue(self, places: int) -> "HttpBounds":
        """These bounds, widened so that one address may fill a queue of so many requests."""
        of_address = max(self.of_address, places + self.of_address // 4)
        connections = max(self.connections, 2 * of_address)
        return replace(self, connections=connections, of_address=of_address)


@dataclass(slots=True)
class Places:
    """Connections that are open, in all and by address; of IPv6 by the network of a host."""

    bounds: HttpBounds
    refused: int = 0
    _open: Counter[str] = field(default_factory=Counter)

    def take(self, host: str) -> str | None:
        """The address that has one place more now; None if it, or nobody, may have one."""
        address = source_of(host)
        full = self._open.total() >= self.bounds.connections
        if full or self._open[address] >= self.bounds.of_address:
            self.refused += 1
            return None
        self._open[address] += 1
        return address

    def free(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    @property
    def open(self) -> int:
        return self._open.total()


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's protocol within bounds: one clock runs while the client is the one to act."""

    def __init__(self, places: Places, address: str, **more: Any) -> None:
        super().__init__(**more)
        self._places, self._bounds = places, places.bounds
        self._address = address
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = 0.0
        self._stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn names
        super().connection_made(transport)
        self._await(self._bounds.headers_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        self.resume_writing()
        self._places.free(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._await(self._bounds.headers_s)
        super().data_received(data)

    def on_message_begin(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # uvicorn queues what is pipelined without a bound, and forgets who waits for it.
            self.transport.abort()
            raise ConnectionError("a request came before the response to the one before it")
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._await(self._bounds.body_s)

    def on_body(self, body: bytes) -> None:
        self._until_s += len(body) / self._bounds.bytes_per_s
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._await(None)
        super().on_message_complete()

    def _await(self, seconds: float | None) -> None:
        """Give the client so long for what comes next; None: it is not the client's turn."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._until_s = self.loop.time() + seconds
            self._timer = self.loop.call_at(self._until_s, self._late)

    def _late(self) -> None:
        if self.flow.read_paused:  # what did not come is not the client's fault
            self._await(self._bounds.body_s)
        elif self.loop.time() < self._until_s:
            self._timer = self.loop.call_at(self._until_s, self._late)
        else:
            cycle = self.cycle
            if cycle is None or cycle.response_complete or not cycle.response_started:
                self.transport.write(REFUSAL % LATE)
            self._end()

    def timeout_keep_alive_handler(self) -> None:
        self._end()

    # What is sent is taken in, or dropped.

    def _end(self) -> None:
        self.transport.close()  # which waits for as long as the client does not read
        self.loop.call_later(self._bounds.taken_in_s, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self._bounds.taken_in_s, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
        super().resume_writing()


class Acceptor:
    """Accepts connections, each of which takes its place before anything is read of it."""

    def __init__(
        self, places: Places, context: ssl.SSLContext | None, more: dict[str, Any]
    ) -> None:
        self._places, self._context, self._more = places, context, more
        self._entering: set[asyncio.Task[None]] = set()

    async def run(self, listening: socket.socket) -> None:
        """Accept until cancelled; handshakes under way then end, too."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        try:
            while True:
                try:
                    connection, peer = await loop.sock_accept(listening)
                except ConnectionError:  # it is gone already
                    continue
                except OSError as error:  # such as too many open files
                    log.warning("cannot accept a connection: %s", error.strerror)
                    await asyncio.sleep(PAUSE_S)
                    continue
                address = self._places.take(peer[0])
                if address is None:
                    with contextlib.closing(connection), contextlib.suppress(OSError):
                        connection.send(b"" if self._context else REFUSAL % BUSY)
                    continue
                entering = asyncio.create_task(self._enter(connection, address), name="accept")
                self._entering.add(entering)
                entering.add_done_callback(self._entering.discard)
        finally:
            entering_now = [*self._entering]
            for entering in entering_now:
                entering.cancel()
            await asyncio.gather(*entering_now, return_exceptions=True)

    async def _enter(self, connection: socket.socket, address: str) -> None:
        protocol = BoundedHttp(self._places, address, **self._more)
        handshake_s = self._places.bounds.headers_s if self._context else None
        try:
            with contextlib.suppress(OSError):  # it is no TLS, or took too long
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: protocol,
                    connection,
                    ssl=self._context,
                    ssl_handshake_timeout=handshake_s,
                )
        finally:
            if protocol.transport is None:
                self._places.free(address)
                connection.close()
