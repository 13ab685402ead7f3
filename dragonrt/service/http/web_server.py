"""The process's HTTP server: uvicorn on the loop that the device runs on."""

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from sse_starlette.sse import AppStatus
from starlette.types import ASGIApp

from dragonrt.errors import DragonError
from dragonrt.service.http.admission import Admission

CONNECTIONS = 512
"""Open at the same time; who comes later gets 503."""
ENDING_S = 30
"""Answers under way may take so long when the service ends."""


class WebServer(uvicorn.Server):
    """Serves until `stop`; answers under way are finished first.

    Signals belong to the process, not to uvicorn.
    """

    def __init__(
        self, app: ASGIApp, listening: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        # Streams end when their answers do: the library would cut them off at once.
        AppStatus.enable_automatic_graceful_drain = False
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                log_config=None,
                log_level=logging.WARNING,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=CONNECTIONS,
                timeout_graceful_shutdown=ENDING_S,
                ssl_context_factory=None if context is None else lambda config, usual: context,
            )
        )
        self._listening = listening

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def run_until_stopped(self) -> None:
        """Serve, and return when the last answer is over."""
        await self.serve([self._listening])

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


async def serve_until_signalled(
    app: ASGIApp,
    admission: Admission,
    listening: socket.socket,
    context: ssl.SSLContext | None,
    on_ready: Callable[[int], None],
) -> None:
    """Serve until SIGINT or SIGTERM; `on_ready` hears the port."""
    server = WebServer(app, listening, context)

    def stop() -> None:
        admission.closing = True
        server.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    on_ready(listening.getsockname()[1])
    await server.run_until_stopped()
