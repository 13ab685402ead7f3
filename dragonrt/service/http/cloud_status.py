"""What a cloud tells its operators over HTTP: whether it lives, whether it takes devices, numbers.

Nothing private is in it: no question, no text, no file's name and no device's address.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dragonrt.node.main import Cloud
from dragonrt.service.http.bounded_http import HttpBounds, Places
from dragonrt.service.http.http_settings import StatusSettings
from dragonrt.service.http.side_metrics import (
    IndexNews,
    ReadWhenAsked,
    counter,
    gauge,
    side_metrics,
)
from dragonrt.service.http.web_server import listen_on, serving, url_of
from dragonrt.traces.events import AnswerClosed, Record
from dragonrt.wire.reasons import BusyError

CONNECTIONS = "Devices that connected, each time anew; more than there are devices connected again."


class CloudStatus:
    """The pages of one cloud; `take` is a sink for every record of its side."""

    def __init__(
        self, where: StatusSettings, news: IndexNews, on_ready: Callable[[str], None]
    ) -> None:
        self._where = where
        self._news = news
        self._on_ready = on_ready
        self._answers: Counter[str] = Counter()

    def take(self, record: Record) -> None:
        """The next record of this side."""
        if isinstance(record.event, AnswerClosed):
            self._answers[record.event.finish] += 1

    @asynccontextmanager
    async def beside(self, cloud: Cloud) -> AsyncIterator[None]:
        """Serve the pages as long as the context lasts. Raises DragonError for a used port."""
        host, port = self._where.http_host, self._where.http_port or 0
        with listen_on(host, port) as listening:
            async with serving(self._application(cloud), listening, None, Places(HttpBounds())):
                self._on_ready(url_of(host, listening))
                yield

    def _application(self, cloud: Cloud) -> Starlette:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        ReadWhenAsked(registry, lambda: self._numbers(cloud))

        async def health(request: Request) -> Response:
            return JSONResponse({"status": "ok"})

        async def ready(request: Request) -> Response:
            try:
                cloud.gatekeeper.check_room()
            except BusyError as error:
                return JSONResponse({"ready": False, "reason": error.text}, 503)
            return JSONResponse({"ready": True})

        async def metrics(request: Request) -> Response:
            # It looks at files.
            page = await asyncio.to_thread(generate_latest, registry)
            return Response(page, headers={"Content-Type": CONTENT_TYPE_LATEST})

        pages = {"/health": health, "/ready": ready, "/metrics": metrics}
        return Starlette(routes=[Route(path, page) for path, page in pages.items()])

    def _numbers(self, cloud: Cloud) -> Iterator[Metric]:
        gatekeeper, lobby = cloud.gatekeeper, cloud.gatekeeper.lobby
        yield gauge("devices", "Devices that are connected.", gatekeeper.devices)
        yield gauge("sessions", "Sessions that devices have open.", gatekeeper.sessions)
        yield gauge("strangers", "Connections that have not said who they are.", len(lobby))
        yield counter("strangers_refused", "Those that never did.", lobby.turned_away)
        about = (
            "Devices that connected, each time anew; more than there are devices connected again."
        )
        yield counter("device_connections", about, gatekeeper.admitted)
        about = "Devices and sessions that were to come back later."
        yield counter("busy", about, gatekeeper.sent_away)
        about = "Answers that are over, by how they ended."
        yield counter("answers", about, self._answers, "finish")
        yield from side_metrics(cloud.side, self._news)
