"""The health and the numbers of a cloud over HTTP, for its operators.

Nothing private is in it: no question, no text, no file's name and no device's address.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from prometheus_client.metrics_core import Metric
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dragonrt.node.main import Cloud
from dragonrt.service.http.http_settings import StatusSettings
from dragonrt.service.http.metrics import ANSWERS, Metrics, counter, gauge
from dragonrt.service.http.web_server import HttpBounds, Places, listen_on, serving, url_of
from dragonrt.traces.events import AnswerClosed, Record
from dragonrt.wire.reasons import BusyError


class CloudStatus(Metrics):
    """The pages of one cloud; `take` is a sink for every record of its side."""

    def __init__(
        self, where: StatusSettings, skipped: int, on_ready: Callable[[str], None]
    ) -> None:
        super().__init__(ANSWERS, skipped)
        self._where = where
        self._on_ready = on_ready

    def take(self, record: Record) -> None:
        """Count the next record of this side."""
        if isinstance(record.event, AnswerClosed):
            self.add("answers", record.event.finish)

    @asynccontextmanager
    async def beside(self, cloud: Cloud) -> AsyncIterator[None]:
        """Serve the pages as long as the context lasts. Raises DragonError for a used port."""

        async def health(request: Request) -> Response:
            return JSONResponse({"status": "ok"})

        async def ready(request: Request) -> Response:
            try:
                cloud.gatekeeper.check_room()
            except BusyError as error:
                return JSONResponse({"ready": False, "reason": error.text}, 503)
            return JSONResponse({"ready": True})

        self.watch(cloud.side, lambda: _of_cloud(cloud))
        pages = {"/health": health, "/ready": ready, "/metrics": self.page}
        app = Starlette(routes=[Route(path, page) for path, page in pages.items()])
        host, port = self._where.http_host, self._where.http_port or 0
        with listen_on(host, port) as listening:
            async with serving(app, listening, None, Places(HttpBounds())):
                self._on_ready(url_of(host, listening))
                yield


def _of_cloud(cloud: Cloud) -> Iterator[Metric]:
    gatekeeper, lobby = cloud.gatekeeper, cloud.gatekeeper.lobby
    yield gauge("devices", "Devices that are connected.", gatekeeper.devices)
    yield gauge("sessions", "Sessions that devices have open.", gatekeeper.sessions)
    yield gauge("strangers", "Connections that have not said who they are.", len(lobby))
    yield counter("strangers_refused", "Those that never did.", lobby.turned_away)
    text = "Devices that connected, each time anew; more than there are devices connected again."
    yield counter("device_connections", text, gatekeeper.admitted)
    text = "Devices and sessions that were to come back later."
    yield counter("busy", text, gatekeeper.sent_away)
