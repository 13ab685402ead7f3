"""The metrics of a device or a cloud for Prometheus."""

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typing_extensions import override

from dragonrt.errors import DragonError
from dragonrt.modes.dragon.drafts import Draft
from dragonrt.node.process.library import Library
from dragonrt.node.process.local_side import LocalSide
from dragonrt.node.process.programs import Cloud, Device
from dragonrt.service.answer import Answer
from dragonrt.service.http.admission import Admission
from dragonrt.service.http.http_settings import StatusSettings
from dragonrt.service.http.web_server import HttpBounds, Places, listen_on, serving, url_of
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import (
    AnswerClosed,
    BlockSent,
    Drafted,
    LinkProbed,
    MessageReceived,
    Record,
)
from dragonrt.wire.reasons import BusyError
from retrieval import Report

PREFIX = "dragonrt_"
DRAFT = Draft.__name__.lower()
BATCHES = (1, 2, 4, 8, 16, 32, 64)
FIRST_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 30)
BETWEEN_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 5)

Value = float | Mapping[str, float]
"""A number, or one for each value of a label."""


def gauge(
    name: str, help: str, value: Value, label: str = "", kind: Any = GaugeMetricFamily
) -> Metric:
    """Return the state of something as a metric that may rise and fall."""
    metric: Metric = kind(PREFIX + name, help, labels=[label] * bool(label))
    for each, number in value.items() if isinstance(value, Mapping) else [(None, value)]:
        metric.add_metric([] if each is None else [each], number)  # type: ignore[attr-defined]
    return metric


total = partial(gauge, kind=CounterMetricFamily)
"""Return a count that is kept elsewhere as a metric; its printed name ends in _total."""


class Metrics(Collector):
    """The metrics of one process: counters, and the state of its side and its index.

    `skipped` is the number of documents that could not be read at the start.
    """

    def __init__(self, skipped: int = 0) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has none
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(self)
        self._answers = self._counter("answers", "Answers that ended, by reason.", "finish")
        text = "Updates of the index, by how they ended."
        self._updates = self._counter("index_updates", text, "end")
        self._batches = self._histogram("batch_size", "Requests that shared a forward.", BATCHES)
        self._skipped, self._changed_s = skipped, 0.0
        self._read: Callable[[], Iterator[Metric]] = lambda: iter(())

    def _counter(self, name: str, help: str, *label: str) -> Counter:
        return Counter(PREFIX + name, help, label, registry=self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(PREFIX + name, help, buckets=buckets, registry=self.registry)

    def report(self, report: Report | DragonError) -> None:
        """Count an update of the index, or its failure."""
        self._updates.labels("failed" if isinstance(report, DragonError) else "done").inc()
        if isinstance(report, Report):
            self._skipped, self._changed_s = len(report.skipped), time.time()  # a date

    def watch(self, side: LocalSide, read: Callable[[], Iterator[Metric]]) -> None:
        """Report a side's state, and what `read` yields, in each scrape."""
        side.worker.on_forward = self._batches.observe
        for end in ("done", "failed"):
            self._updates.labels(end)

        def both() -> Iterator[Metric]:
            yield from read()
            yield from self._of_side(side)

        self._read = both

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the state. Reads files, so call it off the event loop."""
        return self._read()

    def _of_side(self, side: LocalSide) -> Iterator[Metric]:
        yield gauge("engine_answers", "Answers under way on the model.", side.worker.answers)
        queue = len(side.worker.scheduler.requests)
        yield gauge("engine_queue", "Requests that wait for a forward pass.", queue)
        if side.library is not None:
            yield from self._of_index(side.library)
        following = side.following
        alive = following is not None and not following.stopped
        restarts = 0 if following is None else following.restarts
        yield gauge("watcher_alive", "Whether changes of the documents are noticed.", alive)
        yield total("watcher_restarts", "Times the watcher was started again.", restarts)

    def _of_index(self, library: Library) -> Iterator[Metric]:
        manifest, directory = library.retriever.index.manifest, library.kv.directory.parents[1]
        sizes, newest_s = _sizes(directory)
        changed_s = self._changed_s or newest_s
        yield gauge("index_files", "Files in the index.", manifest.files)
        yield gauge("index_chunks", "Chunks in the index.", manifest.chunks)
        yield gauge("index_bytes", "Bytes on disk, of the index and of stored KV.", sizes, "of")
        yield gauge("index_changed_timestamp_seconds", "When the index last changed.", changed_s)
        text = "Whether documents are still to be indexed."
        yield gauge("index_incomplete", text, library.incomplete)
        yield gauge("files_skipped", "Files that could not be read.", self._skipped)

    def page(self, request: Request) -> Response:
        """Return the page for Prometheus. No coroutine, so that starlette calls it in a thread."""
        page = generate_latest(self.registry)
        return Response(page, headers={"Content-Type": CONTENT_TYPE_LATEST})


class DeviceMetrics(Metrics):
    """The metrics of a device; `take` is a sink for every record of its side."""

    def __init__(self, skipped: int = 0) -> None:
        super().__init__(skipped)
        count, histogram = self._counter, self._histogram
        self._refused = count("refused", "Requests refused, by status.", "status")
        self._tokens = count("tokens", "Tokens of answers.")
        self._drafted = count("drafted_tokens", "Draft tokens, by the side that made them.", "side")
        self._compared = count("compared_tokens", "Draft tokens compared with the target.", "side")
        self._accepted = count("accepted_tokens", "Draft tokens accepted.", "side")
        self._waited = count("waited_seconds", "Waiting for the next token, by cause.", "cause")
        self._bytes = count("answer_bytes", "Bytes between the sides in answers.", "direction")
        text = "Answers that ended, by how much of each the other sides took part in."
        self._together = count("answers_together", text, "others")
        text = "Bits of this side's documents in answers, and those revealed."
        self._bits = count("disclosed_bits", text, "kind")
        text = "Tokens sent to the other side, or withheld."
        self._disclosed = count("disclosed_tokens", text, "kind")
        text = "From the question to its first token."
        self._first = histogram("time_to_first_token_seconds", text, FIRST_S)
        text = "From a target token to the next."
        self._between = histogram("time_between_tokens_seconds", text, BETWEEN_S)
        name, text = f"{PREFIX}round_trip_seconds", "To the other side, as last probed."
        self._round_trip = Gauge(name, text, ["peer"], registry=self.registry)

    def refuse(self, status: int) -> None:
        """Count a refused request."""
        self._refused.labels(status).inc()

    def take(self, record: Record) -> None:
        """Count the next record of this side."""
        match record.event:
            case Drafted():
                self._drafted.labels("device").inc()
            case BlockSent(tokens=tokens):
                self._drafted.labels("device").inc(tokens)
            case MessageReceived(message=message) if message == DRAFT:
                self._drafted.labels("cloud").inc()
            case LinkProbed(rtt=float(rtt)):
                self._round_trip.labels(record.peer or "cloud").set(rtt)
            case _:
                pass

    def over(self, answered: Answer | None) -> None:
        """Count a finished answer; None if it failed."""
        if answered is None:
            self._answers.labels("error").inc()
            return
        answer, ledger = answered.decoded, answered.ledger
        counts = AnswerCounts.of(answer.records)
        self._answers.labels(answer.finish.value).inc()
        self._together.labels({None: "all", 0: "none"}.get(counts.alone_from, "part")).inc()
        self._tokens.inc(counts.tokens)
        for seconds in counts.first_token_s:
            self._first.observe(seconds)
        for part in answered.parts:
            for (before, _), (after, _) in pairwise(part.decoded.decisions):
                self._between.observe(after - before)
        bits = {each: ledger.get(f"{each}_bits") or 0.0 for each in ("evidence", "revealed")}
        tokens = {each: ledger[f"tokens_{each}"] for each in ("sent", "withheld")}
        for counter, amounts in (
            (self._compared, counts.compared),
            (self._accepted, counts.accepted),
            (self._waited, counts.waited_s),
            (self._bits, bits),
            (self._disclosed, tokens),
            (self._bytes, {"sent": answer.bytes_sent, "received": answer.bytes_received}),
        ):
            for label, amount in amounts.items():
                counter.labels(label).inc(max(0.0, amount))

    def watch_device(self, device: Device, admission: Admission, places: Places) -> None:
        """Report the state of a device and of its service in each scrape."""

        def read() -> Iterator[Metric]:
            links = device.connectors
            peers = {name: link.peer for name, link in links.items()}
            there = {name: peer is not None for name, peer in peers.items()}
            again = {name: link.reconnections for name, link in links.items()}
            open_ = {
                name: len(peer.connection.sessions) if peer else 0 for name, peer in peers.items()
            }
            yield gauge("connected", "Whether the other side is connected.", there, "peer")
            yield total("reconnections", "Reconnections after a lost connection.", again, "peer")
            yield gauge("sessions", "Sessions open with the other side.", open_, "peer")
            yield gauge("answers_running", "Answers under way.", admission.running)
            text = "Requests that wait for a free place."
            yield gauge("answers_waiting", text, admission.waiting)
            yield gauge("http_connections", "HTTP connections that are open.", places.open)
            text = "HTTP connections for which was no place."
            yield total("http_connections_refused", text, places.refused)

        self.watch(device.side, read)


class CloudStatus(Metrics):
    """The health and the metrics of a cloud, without private data.

    `take` is a sink for every record of its side.
    """

    def __init__(
        self, where: StatusSettings, skipped: int, on_ready: Callable[[str], None]
    ) -> None:
        super().__init__(skipped)
        self._where = where
        self._on_ready = on_ready

    def take(self, record: Record) -> None:
        """Count the next record of this side."""
        if isinstance(record.event, AnswerClosed):
            self._answers.labels(record.event.finish).inc()

    @asynccontextmanager
    async def beside(self, cloud: Cloud) -> AsyncIterator[None]:
        """Serve the pages until the context ends. Raises DragonError for a used port."""

        async def health(request: Request) -> Response:
            return JSONResponse({"status": "ok"})

        async def ready(request: Request) -> Response:
            try:
                cloud.admission.check_room()
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
    admission, handshakes = cloud.admission, cloud.admission.handshakes
    yield gauge("devices", "Devices that are connected.", admission.devices)
    yield gauge("sessions", "Sessions that devices have open.", admission.sessions)
    yield gauge("handshakes", "Connections that have not authenticated yet.", len(handshakes))
    text = "Connections that ended without authentication."
    yield total("handshakes_failed", text, handshakes.failed)
    text = "Connections of devices since the start, reconnections included."
    yield total("device_connections", text, admission.admitted)
    yield total("busy", "Connections and sessions refused as busy.", admission.refused)


def _sizes(directory: Path) -> tuple[dict[str, float], float]:
    """Return the bytes of the index and of its KV, and when the index last changed."""
    sizes, newest_s = {"index": 0.0, "kv": 0.0}, 0.0
    for folder, _, files in os.walk(directory):
        of = "index" if Path(folder) == directory else "kv"
        for name in files:
            with suppress(OSError):  # another thread has deleted it
                found = Path(folder, name).stat()
                sizes[of] += found.st_size
                newest_s = max(newest_s, found.st_mtime if of == "index" else 0.0)
    return sizes, newest_s
