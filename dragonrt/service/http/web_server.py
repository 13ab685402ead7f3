"""The HTTP server: uvicorn on the side's loop, with limits for untrusted clients.

uvicorn limits only the idle time between requests. Here each connection takes a place before TLS or
a key, and requests and responses have deadlines.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dragonrt.errors import DragonError
from dragonrt.link.stream import reason_of
from dragonrt.node.connections.admission import source_of
from dragonrt.service.http.admission import ENDING_S

log = logging.getLogger(__name__)

PAUSE_S = 1.0
"""Seconds between attempts if connections cannot be accepted."""
BUSY, LATE = b"503 Service Unavailable", b"408 Request Timeout"
LONG = b"431 Request Header Fields Too Large"
REFUSAL = b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBounds:
    """The most connections, and the time of a client; seconds.

    A body has `body_s`, and one second more for each `bytes_per_s` received. A client that does not
    read a response for `taken_in_s` is disconnected.
    """

    connections: int = 512
    of_address: int = 128
    headers_s: float = 10.0
    header_bytes: int = 32 * 1024
    body_s: float = 30.0
    bytes_per_s: int = 64 * 1024
    taken_in_s: float = 30.0
    idle_s: int = 5

    def for_queue(self, places: int) -> "HttpBounds":
        """Return these bounds, widened so that one address may fill a queue of that length."""
        of_address = max(self.of_address, places + self.of_address // 4)
        connections = max(self.connections, 2 * of_address)
        return replace(self, connections=connections, of_address=of_address)


@dataclass(slots=True)
class Places:
    """The open connections, in total and by address (IPv6: by network)."""

    bounds: HttpBounds
    refused: int = 0
    _open: Counter[str] = field(default_factory=Counter)

    def take(self, host: str) -> str | None:
        """Take a place for a host; return its address, None if there is no place."""
        address = source_of(host)
        if self.open >= self.bounds.connections or self._open[address] >= self.bounds.of_address:
            self.refused += 1
            return None
        self._open[address] += 1
        return address

    def free(self, address: str) -> None:
        """Return a place."""
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    @property
    def open(self) -> int:
        """The number of open connections."""
        return self._open.total()


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's protocol with limits: a timer runs while it is the client's turn."""

    def __init__(self, places: Places, address: str, **more: Any) -> None:
        super().__init__(**more)
        self._places, self._bounds = places, places.bounds
        self._address = address
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = 0.0
        self._room = self._bounds.header_bytes  # for what is no body: headers, trailers
        self._stuck: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn names
        super().connection_made(transport)
        self._await(self._bounds.headers_s)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        self.resume_writing()
        self._places.free(self._address)
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._await(self._bounds.headers_s)
        while data and not self.transport.is_closing():
            part, data = data[: self._room], data[self._room :]
            self._room -= len(part)
            super().data_received(part)
            if not self._room:
                self._refuse(LONG)

    @override
    def on_message_begin(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # uvicorn queues pipelined requests without a limit, and ignores disconnects.
            self.transport.abort()
            raise ConnectionError("a request came before the response to the one before it")
        super().on_message_begin()

    @override
    def on_headers_complete(self) -> None:
        self._room = self._bounds.header_bytes
        super().on_headers_complete()
        self.headers = []  # the request keeps its own; uvicorn would add the trailers to them
        self._await(self._bounds.body_s)

    @override
    def on_body(self, body: bytes) -> None:
        self._room = self._bounds.header_bytes
        self._until_s += len(body) / self._bounds.bytes_per_s
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._await(None)
        self._room = self._bounds.header_bytes
        super().on_message_complete()

    def _await(self, seconds: float | None) -> None:
        """Limit the client's next step to `seconds`; None if it is not the client's turn."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._until_s = self.loop.time() + seconds
            self._timer = self.loop.call_at(self._until_s, self._late)

    def _late(self) -> None:
        if self.flow.read_paused:  # the server stopped reading: not the client's fault
            self._await(self._bounds.body_s)
        elif self.loop.time() < self._until_s:
            self._timer = self.loop.call_at(self._until_s, self._late)
        else:
            self._refuse(LATE)

    def _refuse(self, status: bytes) -> None:
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(REFUSAL % status)
        self.timeout_keep_alive_handler()

    @override
    def timeout_keep_alive_handler(self) -> None:
        self.transport.close()  # it would wait until the client reads
        self.loop.call_later(self._bounds.taken_in_s, self.transport.abort)

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self._bounds.taken_in_s, self.transport.abort)

    @override
    def resume_writing(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
        super().resume_writing()


class WebServer(uvicorn.Server):
    """Serves until `stop`; answers under way are finished first.

    Signals belong to the process, not to uvicorn.
    """

    def __init__(self, app: ASGIApp, context: ssl.SSLContext | None, places: Places) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                http=BoundedHttp,
                log_config=None,
                log_level=logging.ERROR,  # its warnings are of clients that speak no HTTP
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=places.bounds.idle_s,
                timeout_graceful_shutdown=ENDING_S,
            )
        )
        self._places = places
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()
        self.servers = []

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections; uvicorn would accept them before they take a place."""
        for each in sockets or ():
            self._start(self._accept(each))
        self.started = True

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, end the handshakes, and finish as uvicorn does."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await super().shutdown(sockets)

    @contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Stop accepting requests; a second call does not wait for answers."""
        self.force_exit = self.should_exit
        self.should_exit = True

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="accept")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            try:
                connection, peer = await loop.sock_accept(listening)
            except ConnectionError:  # it has disconnected already
                continue
            except OSError as error:  # such as too many open files
                log.warning("cannot accept a connection: %s", error.strerror)
                await asyncio.sleep(PAUSE_S)
                continue
            if (address := self._places.take(peer[0])) is not None:
                self._start(self._enter(connection, address))
                continue
            with closing(connection), suppress(OSError):
                connection.send(b"" if self._context else REFUSAL % BUSY)

    async def _enter(self, connection: socket.socket, address: str) -> None:
        more = {"config": self.config, "server_state": self.server_state, "app_state": {}}
        protocol = BoundedHttp(self._places, address, **more)
        handshake_s = self._places.bounds.headers_s if self._context else None
        try:
            with suppress(OSError):  # it is no TLS, or took too long
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


def listen_on(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises DragonError if it cannot listen."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        why = f"{reason_of(error)}; choose another address or port"
        raise DragonError(f"cannot listen on {host}:{port}: {why}") from None


def url_of(host: str, listening: socket.socket, scheme: str = "http") -> str:
    """Return the address of a socket that listens on that host."""
    port = listening.getsockname()[1]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@asynccontextmanager
async def serving(
    app: ASGIApp, listening: socket.socket, context: ssl.SSLContext | None, places: Places
) -> AsyncIterator[WebServer]:
    """Yield the server, until the context ends: then it waits for answers under way."""
    server = WebServer(app, context, places)
    running = asyncio.create_task(server.serve([listening]), name="web server")
    try:
        yield server
    finally:
        server.stop()
        await running
