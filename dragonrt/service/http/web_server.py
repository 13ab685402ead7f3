"""The HTTP server: uvicorn on the side's event loop, with limits for untrusted clients.

uvicorn on h11 bounds what it keeps of a request: its head, its trailers, and one piece of its body.
`Connection` adds a bound on connections, and a deadline while the client must send or read.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override

from dragonrt.errors import DragonError
from dragonrt.link.stream import reason_of
from dragonrt.node.connections.admission import source_of
from dragonrt.service.http.api_request import ApiError
from dragonrt.service.http.guard import ENDING_S

HEAD_BYTES = 32 * 1024
"""The most bytes of a head, of trailers, or of a chunk's extensions, that have not ended yet."""
BODY_S, BYTES_PER_S = 30.0, 64 * 1024
"""A body has BODY_S seconds, and one more for each BYTES_PER_S bytes received."""
CONNECTION = "dragonrt.connection"
BUSY, LATE = b"503 Service Unavailable", b"408 Request Timeout"
REFUSAL = b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBounds:
    """The most connections, in total and per client address, and the seconds a client may take.

    A client has `head_s` for TLS, and again for each request's head. It is disconnected if it reads
    nothing of a response for `taken_in_s`, or sends no request for `idle_s`. Bodies: see `bounded`.
    """

    connections: int = 512
    of_address: int = 128
    head_s: float = 10.0
    taken_in_s: float = 30.0
    idle_s: int = 5

    def for_queue(self, places: int) -> "HttpBounds":
        """Return bounds that let one client address have `places` requests at the same time."""
        of_address = max(self.of_address, places + self.of_address // 4)
        connections = max(self.connections, 2 * of_address)
        return replace(self, connections=connections, of_address=of_address)


@dataclass(slots=True)
class Places:
    """A count of the open connections, in total and per client address (IPv6: per network)."""

    bounds: HttpBounds
    refused: int = 0
    _open: Counter[str] = field(default_factory=Counter)

    def take(self, host: str) -> str | None:
        """Count a connection of `host`; return the key to `free` it by, None if over the bounds."""
        address = source_of(host)
        if self.open >= self.bounds.connections or self._open[address] >= self.bounds.of_address:
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


class Connection(asyncio.Protocol):
    """A connection: uvicorn's protocol, counted in Places, with a deadline for the client."""

    def __init__(self, server: "WebServer") -> None:
        protocol: Any = server.config.http_protocol_class
        state = {CONNECTION: self}  # of each request
        self._http = protocol(server.config, server.server_state, state)
        self._places, self._bounds = server.places, server.places.bounds
        self._loop = asyncio.get_running_loop()
        self._place: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._answering = False
        self.eof_received = self._http.eof_received  # type: ignore[method-assign]
        self.pause_writing = self._http.pause_writing  # type: ignore[method-assign]
        self.resume_writing = self._http.resume_writing  # type: ignore[method-assign]

    @override
    def connection_made(self, transport: Any) -> None:  # uvloop's is no asyncio.Transport
        self._transport = transport
        peer = transport.get_extra_info("peername")  # None if it has disconnected already
        self._place = peer and self._places.take(peer[0])
        if self._place is None:
            transport.write(REFUSAL % BUSY)
            transport.close()
            return
        self._http.connection_made(transport)
        self._await_head()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        place, self._place = self._place, None
        if place is not None:
            self._places.free(place)
            self._http.connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if self._place is None or self._transport.is_closing():
            return
        if self._answering:
            # Behind a request that comes early uvicorn reads no more, and notices no disconnect.
            self._transport.abort()
            return
        try:
            self._http.data_received(data)
        except h11.LocalProtocolError:  # no HTTP, while a response is under way
            self._transport.abort()

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        self._stop_timer()
        responded = False

        def end() -> None:
            nonlocal responded
            responded, self._answering = True, False
            self._await_head()

        async def read() -> Message:
            message = await receive()
            self._answering = not (responded or message.get("more_body"))
            return message

        async def write(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                end()  # uvicorn may begin the next request while it sends
            try:
                async with asyncio.timeout(self._bounds.taken_in_s):
                    await send(message)
            except TimeoutError:
                self._transport.abort()

        try:
            await app(scope, read, write)
        finally:
            if not responded:
                end()

    def _await_head(self) -> None:
        self._stop_timer()
        if self._place is not None:
            self._unsent = self._transport.get_write_buffer_size()
            self._timer = self._loop.call_later(self._bounds.head_s, self._late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        unsent = self._transport.get_write_buffer_size()
        if not unsent and not self._transport.is_closing():
            self._transport.write(REFUSAL % LATE)
            self._transport.close()  # it would wait until the client reads
        elif not 0 < unsent < self._unsent:  # it reads nothing of the response
            self._transport.abort()
        self._await_head()


class WebServer(uvicorn.Server):
    """A uvicorn server that handles no signals; after `stop` it finishes responses under way."""

    def __init__(self, app: ASGIApp, context: ssl.SSLContext | None, places: Places) -> None:
        async def on_connection(scope: Scope, receive: Receive, send: Send) -> None:
            await scope["state"].pop(CONNECTION).run(app, scope, receive, send)

        super().__init__(
            uvicorn.Config(
                on_connection,
                lifespan="off",
                ws="none",
                http="h11",
                h11_max_incomplete_event_size=HEAD_BYTES,
                log_config=None,
                log_level=logging.ERROR,  # its warnings are of clients that speak no HTTP
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=places.bounds.idle_s,
                timeout_graceful_shutdown=ENDING_S,
            )
        )
        self.places = places
        self._context = context

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections on `sockets`; unlike uvicorn's own method, bound the time of TLS."""
        loop, self.servers = asyncio.get_running_loop(), []
        handshake_s = self.places.bounds.head_s if self._context else None
        for each in sockets or ():
            server = await loop.create_server(
                partial(Connection, self),
                sock=each,
                ssl=self._context,
                ssl_handshake_timeout=handshake_s,
            )
            self.servers.append(server)
        self.started = True

    @contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Accept nothing new and finish responses under way; a second call drops the responses."""
        self.force_exit = self.should_exit
        self.should_exit = True


async def bounded(request: Request, largest: int) -> AsyncIterator[bytes]:
    """Yield a body's pieces; ApiError over `largest` bytes, or slower than 64 KiB/s after 30 s."""
    size, announced = 0, int(request.headers.get("content-length", 0))
    error = ApiError(413, f"at most {largest} bytes are taken here", code="too_large")
    if announced > largest:
        raise error
    pieces, begun_s = aiter(request.stream()), asyncio.get_running_loop().time()
    while True:
        try:
            async with asyncio.timeout_at(begun_s + BODY_S + size / BYTES_PER_S):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise ApiError(408, "the body did not arrive in time", code="timeout") from None
        size += len(piece)
        if size > largest:
            raise error
        yield piece


def listen_on(host: str, port: int, interface: str = "") -> socket.socket:
    """Return a listening socket, bound to `interface` unless that is "". Raises DragonError."""
    try:
        listening = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
        if interface:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        return listening
    except OSError as error:
        why = f"{reason_of(error)}; choose another address or port"
        raise DragonError(f"cannot listen on {host}:{port}: {why}") from None


def url_of(host: str, listening: socket.socket, scheme: str = "http") -> str:
    """Return the URL of a listening socket: the given host, and the port that the socket has."""
    port = listening.getsockname()[1]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@asynccontextmanager
async def serving(
    app: ASGIApp, listening: socket.socket, context: ssl.SSLContext | None, places: Places
) -> AsyncIterator[WebServer]:
    """Run a server of `app` in this context, with TLS by `context`; then finish its responses."""
    server = WebServer(app, context, places)
    running = asyncio.create_task(server.serve([listening]), name="web server")
    try:
        yield server
    finally:
        server.stop()
        await running
