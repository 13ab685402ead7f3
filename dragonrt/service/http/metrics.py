"""The metrics of a device or a cloud for Prometheus."""

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typing_extensions import override

from dragonrt.errors import DragonError
from dragonrt.modes.dragon.messages import Draft
from dragonrt.node.compute.worker import Worker
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


class Figure(NamedTuple):
    """The help text of a metric and its label, if it has one."""

    help: str
    label: str = ""


ANSWERS = {"answers": Figure("Answers that ended, by reason.", "finish")}
OF_DEVICE = ANSWERS | {
    "refused": Figure("Requests refused, by status.", "status"),
    "tokens": Figure("Tokens of answers."),
    "drafted_tokens": Figure("Draft tokens, by the side that made them.", "side"),
    "compared_tokens": Figure("Draft tokens that were compared with the token decided.", "side"),
    "accepted_tokens": Figure("Draft tokens that became tokens of the answer.", "side"),
    "waited_seconds": Figure("Seconds that the next token waited, by what it waited for.", "cause"),
    "answer_bytes": Figure("Bytes between the sides during answers.", "direction"),
    "answers_together": Figure(
        "Answers that ended, by how much of each the other sides took part in.", "others"
    ),
    "disclosed_bits": Figure(
        "Bits of this side's documents in answers, and those revealed.",
        "kind",
    ),
    "disclosed_tokens": Figure("Tokens sent to the other side, or withheld.", "kind"),
}
"""The counters of a device; a cloud has only `ANSWERS`."""

Value = float | Mapping[str, float]
"""A number, or one for each value of a label."""


def gauge(name: str, help: str, value: Value, label: str = "") -> Metric:
    """Return a metric that may rise and fall."""
    return _filled(GaugeMetricFamily(PREFIX + name, help, labels=[label] * bool(label)), value)


def counter(name: str, help: str, value: Value, label: str = "") -> Metric:
    """Return a metric that only rises; its printed name ends in _total."""
    return _filled(CounterMetricFamily(PREFIX + name, help, labels=[label] * bool(label)), value)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, value: Value) -> Metric:
    for label, number in value.items() if isinstance(value, Mapping) else [(None, value)]:
        family.add_metric([] if label is None else [label], number)
    return family


class Metrics(Collector):
    """The metrics of one process: totals, and the state of its side and its index.

    `skipped` is the number of documents that could not be read at the start.
    """

    def __init__(self, counters: Mapping[str, Figure], skipped: int = 0) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has none
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(self)
        self._counters = counters
        self._totals: dict[str, dict[str, float]] = {name: {} for name in counters}
        self._skipped, self._changed_s = skipped, 0.0
        self._updates = {"done": 0, "failed": 0}
        self._side: LocalSide | None = None
        self._read: Callable[[], Iterator[Metric]] = lambda: iter(())

    def add(self, name: str, label: str = "", amount: float = 1.0) -> None:
        """Increase a counter."""
        of = self._totals[name]
        of[label] = of.get(label, 0.0) + amount

    def report(self, report: Report | DragonError) -> None:
        """Count an update of the index, or its failure."""
        self._updates["failed" if isinstance(report, DragonError) else "done"] += 1
        if isinstance(report, Report):
            self._skipped, self._changed_s = len(report.skipped), time.time()  # a date

    def watch(self, side: LocalSide, read: Callable[[], Iterator[Metric]]) -> None:
        """Report a side's state, and what `read` yields, in each scrape."""
        self._side, self._read = side, read

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. Reads files, so call it off the event loop."""
        for name, (text, label) in self._counters.items():
            of = self._totals[name]
            yield counter(name, text, of if label else of.get("", 0.0), label)
        yield from self._read()
        if (side := self._side) is None:
            return
        yield gauge("engine_answers", "Answers under way on the model.", side.worker.answers)
        yield gauge(
            "engine_queue",
            "Requests that wait for a forward pass.",
            len(side.worker.scheduler.requests),
        )
        yield _batches(side.worker)
        if side.library is not None:
            yield from self._of_index(side.library)
        following = side.following
        alive, restarts = (
            (0, 0) if following is None else (not following.stopped, following.restarts)
        )
        yield gauge("watcher_alive", "Whether changes of the documents are noticed.", alive)
        yield counter("watcher_restarts", "Times the watcher was started again.", restarts)

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
        text = "Updates of the index, by how they ended."
        yield counter("index_updates", text, self._updates, "end")

    def page(self, request: Request) -> Response:
        """Return the page for Prometheus. No coroutine, so that starlette calls it in a thread."""
        page = generate_latest(self.registry)
        return Response(page, headers={"Content-Type": CONTENT_TYPE_LATEST})


class DeviceMetrics(Metrics):
    """The metrics of a device; `take` is a sink for every record of its side."""

    def __init__(self, skipped: int = 0) -> None:
        super().__init__(OF_DEVICE, skipped)
        self._rtt_s: dict[str, float] = {}
        self._first = Histogram(
            f"{PREFIX}time_to_first_token_seconds",
            "From the question to its first token.",
            buckets=FIRST_S,
            registry=self.registry,
        )
        self._between = Histogram(
            f"{PREFIX}time_between_tokens_seconds",
            "From a target token to the next.",
            buckets=BETWEEN_S,
            registry=self.registry,
        )

    def take(self, record: Record) -> None:
        """Count the next record of this side."""
        match record.event:
            case Drafted():
                self.add("drafted_tokens", "device")
            case BlockSent(tokens=tokens):
                self.add("drafted_tokens", "device", tokens)
            case MessageReceived(message=message) if message == DRAFT:
                self.add("drafted_tokens", "cloud")
            case LinkProbed(rtt=float(rtt)):
                self._rtt_s[record.peer or "cloud"] = rtt
            case _:
                pass

    def over(self, answered: Answer | None) -> None:
        """Count a finished answer; None if it failed."""
        if answered is None:
            self.add("answers", "error")
            return
        answer, ledger = answered.decoded, answered.ledger
        counts = AnswerCounts.of(answer.records)
        for seconds in counts.first_token_s:
            self._first.observe(seconds)
        for part in answered.parts:
            for (before, _), (after, _) in pairwise(part.decoded.decisions):
                self._between.observe(after - before)
        amounts: dict[str, Mapping[Any, float]] = {
            "answers": {answer.finish.value: 1.0},
            "tokens": {"": counts.tokens},
            "compared_tokens": counts.compared,
            "accepted_tokens": counts.accepted,
            "waited_seconds": counts.waited_s,
            "disclosed_bits": {
                each: ledger.get(f"{each}_bits") or 0.0 for each in ("evidence", "revealed")
            },
            "disclosed_tokens": {each: ledger[f"tokens_{each}"] for each in ("sent", "withheld")},
            "answer_bytes": {"sent": answer.bytes_sent, "received": answer.bytes_received},
            "answers_together": {{None: "all", 0: "none"}.get(counts.alone_from, "part"): 1.0},
        }
        for name, values in amounts.items():
            for label, amount in values.items():
                self.add(name, label, max(0.0, amount))

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
            yield counter("reconnections", "Reconnections after a lost connection.", again, "peer")
            yield gauge("sessions", "Sessions open with the other side.", open_, "peer")
            text = "To the other side, as last probed."
            yield gauge("round_trip_seconds", text, self._rtt_s, "peer")
            yield gauge("answers_running", "Answers under way.", admission.running)
            yield gauge(
                "answers_waiting", "Requests that wait for a free place.", admission.waiting
            )
            yield gauge("http_connections", "HTTP connections that are open.", places.open)
            text = "HTTP connections for which was no place."
            yield counter("http_connections_refused", text, places.refused)

        self.watch(device.side, read)


class CloudStatus(Metrics):
    """The health and the metrics of a cloud, without private data.

    `take` is a sink for every record of its side.
    """

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
    yield counter(
        "handshakes_failed", "Connections that ended without authentication.", handshakes.failed
    )
    text = "Connections of devices since the start, reconnections included."
    yield counter("device_connections", text, admission.admitted)
    text = "Connections and sessions refused as busy."
    yield counter("busy", text, admission.refused)


def _batches(worker: Worker) -> Metric:
    sizes = dict(worker.batches)
    of_bucket = [
        sum(count for size, count in sizes.items() if low < size <= high)
        for low, high in zip((0, *BATCHES), (*BATCHES, float("inf")), strict=True)
    ]
    names = [*map(str, BATCHES), "+Inf"]
    buckets = [*zip(names, map(float, accumulate(of_bucket)), strict=True)]
    total = sum(size * count for size, count in sizes.items())
    text = "Requests that shared a forward."
    return HistogramMetricFamily(f"{PREFIX}batch_size", text, buckets=buckets, sum_value=total)


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
