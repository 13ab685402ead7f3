"""The process's HTTP server: uvicorn on the loop that the device runs on."""

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from sse_starlette.sse import AppStatus
from starlette.types import ASGIApp

from dragonrt.errors import DragonError
from dragonrt.node.ending import on_signals
from dragonrt.service.http.admission import Admission
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


@asynccontextmanager
async def serving(
    app: ASGIApp,
    listening: socket.socket,
    context: ssl.SSLContext | None,
    places: Places,
) -> AsyncIterator[WebServer]:
    """The server, until the context ends: then it waits for answers under way."""
    server = WebServer(app, context, places)
    running = asyncio.create_task(server.serve([listening]), name="web server")
    try:
        yield server
    finally:
        server.stop()
        await running


async def serve_until_signalled(
    app: ASGIApp,
    admission: Admission,
    listening: socket.socket,
    context: ssl.SSLContext | None,
    places: Places,
    on_ready: Callable[[int], None],
) -> None:
    """Serve until SIGINT or SIGTERM; `on_ready` hears the port."""
    stopped = asyncio.Event()
    async with serving(app, listening, context, places) as server:

        def stop() -> None:
            admission.closing = True
            if stopped.is_set():
                server.stop()
            stopped.set()

        on_signals((signal.SIGINT, signal.SIGTERM), stop, stop)
        on_ready(listening.getsockname()[1])
        await stopped.wait()
