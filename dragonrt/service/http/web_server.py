"""The process's HTTP server: uvicorn on the loop that the device runs on."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from sse_starlette.sse import AppStatus
from starlette.types import ASGIApp

from dragonrt.errors import DragonError
from dragonrt.service.http.bounded_http import Acceptor, BoundedHttp, Places

ENDING_S = 30
"""Answers under way may take so long when the service ends."""


class WebServer(uvicorn.Server):
    """Serves until `stop`; answers under way are finished first.

    Signals belong to the process, not to uvicorn.
    """

    def __init__(self, app: ASGIApp, context: ssl.SSLContext | None, places: Places) -> None:
        # Streams end when their answers do: the library would cut them off at once.
        AppStatus.enable_automatic_graceful_drain = False
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                http=BoundedHttp,
                log_config=None,
                log_level=logging.WARNING,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=places.bounds.idle_s,
                timeout_graceful_shutdown=ENDING_S,
            )
        )
        self._places = places
        self._context = context
        self._accepting: list[asyncio.Task[None]] = []
        self.servers = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; places are taken before TLS, so this does not leave accepting to uvicorn."""
        more = {"config": self.config, "server_state": self.server_state, "app_state": {}}
        acceptor = Acceptor(self._places, self._context, more)
        self._accepting = [asyncio.create_task(acceptor.run(each)) for each in sockets or ()]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and end as uvicorn does."""
        for accepting in self._accepting:
            accepting.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Take no more requests; asked for twice, wait for no answer either."""
        self.force_exit = self.should_exit
        self.should_exit = True


def listen_on(host: str, port: int) -> socket.socket:
    """A listening socket; DragonError if there can be none."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        raise DragonError(f"cannot listen on {host}:{port}: {error.strerror}") from None


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
