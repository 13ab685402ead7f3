"""The metrics of a device or a cloud, in Prometheus's format."""

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
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
from dragonrt.service.http.guard import Admission
from dragonrt.service.http.http_settings import StatusSettings
from dragonrt.service.http.web_server import HttpBounds, Places, listen_on, serving, url_of
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import AnswerClosed, BlockSent, Drafted, MessageReceived, Record
from dragonrt.wire.reasons import BusyError
from retrieval import Report

PREFIX = "dragonrt_"
DRAFT = Draft.__name__.lower()
BATCHES = (1, 2, 4, 8, 16, 32, 64)
FIRST_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 30)
BETWEEN_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 5)


Counters = Mapping[str, tuple[str, str]]
OF_SIDE: Counters = {
    "answers": ("Answers that ended, by reason.", "finish"),
    "index_updates": ("Updates of the index, by how they ended.", "end"),
}
OF_DEVICE: Counters = {
    "refused": ("Requests refused, by status.", "status"),
    "generation_tokens": ("Tokens of answers.", ""),
    "spec_decode_num_draft_tokens": ("Draft tokens, by the side that made them.", "side"),
    "compared_tokens": ("Draft tokens compared with the target.", "side"),
    "spec_decode_num_accepted_tokens": ("Draft tokens accepted.", "side"),
    "waited_seconds": ("Waiting for the next token, by cause.", "cause"),
    "answer_bytes": ("Bytes between the sides in answers.", "direction"),
    "answers_together": ("Answers that ended, by the share of the other sides.", "others"),
    "disclosed_bits": ("Bits of this side's documents in answers, and revealed ones.", "kind"),
    "disclosed_tokens": ("Tokens sent to the other side, or withheld.", "kind"),
}
"""The help and the label of each counter; its printed name ends in _total."""

Value = float | Mapping[str, float]
"""A number, or one for each value of a label."""


def state(
    name: str, help: str, value: Value, label: str = "", kind: Any = GaugeMetricFamily
) -> Metric:
    """Return a Prometheus metric of type `kind`; a Mapping has a number per value of `label`."""
    metric: Metric = kind(PREFIX + name, help, labels=[label] * bool(label))
    for each, number in value.items() if isinstance(value, Mapping) else [(None, value)]:
        metric.add_metric([] if each is None else [each], number)  # type: ignore[attr-defined]
    return metric


total = partial(state, kind=CounterMetricFamily)
"""Return a count that is kept elsewhere as a metric; its printed name ends in _total."""


class Metrics(Collector):
    """The Prometheus metrics of one process: counters, and the state of its side and its index.

    `skipped` documents could not be read at the start. `own` adds counters, {name: (help, label)}.
    """

    def __init__(self, skipped: int = 0, own: Counters | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has none
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(self)
        self._counters = {
            name: Counter(PREFIX + name, help, [label] * bool(label), registry=self.registry)
            for name, (help, label) in {**OF_SIDE, **(own or {})}.items()
        }
        self._batches = self.histogram("batch_size", "Requests that shared a forward.", BATCHES)
        self._skipped, self._changed_s = skipped, 0.0
        self._read: Callable[[], Iterator[Metric]] = lambda: iter(())

    def histogram(self, name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(PREFIX + name, help, buckets=buckets, registry=self.registry)

    def count(self, name: str, amounts: Mapping[Any, float]) -> None:
        """Increase the counter `name`: `amounts` has a number per label value (None: no label)."""
        for label, amount in amounts.items():
            counter = self._counters[name]
            (counter if label is None else counter.labels(label)).inc(max(0.0, amount))

    def report(self, report: Report | DragonError) -> None:
        self.count("index_updates", {"failed" if isinstance(report, DragonError) else "done": 1})
        if isinstance(report, Report):
            self._skipped, self._changed_s = len(report.skipped), time.time()  # a date

    def watch(self, side: LocalSide, read: Callable[[], Iterator[Metric]]) -> None:
        """From now on, report at each scrape the state of `side`, and the metrics `read` yields."""
        side.thread.on_forward = self._batches.observe
        self.count("index_updates", {"done": 0, "failed": 0})
        self._read = lambda: chain(read(), self._of_side(side))

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the watched side's metrics at a scrape. Reads files: not for the event loop."""
        return self._read()

    def _of_side(self, side: LocalSide) -> Iterator[Metric]:
        yield state("engine_answers", "Answers under way on the model.", side.thread.answers)
        queue = len(side.thread.scheduler.requests)
        yield state("engine_queue", "Requests that wait for a forward pass.", queue)
        tokens = side.prefix_cache
        yield total("prefix_cache_queries", "Tokens of documents for answers.", tokens["queries"])
        yield total("prefix_cache_hits", "Those whose KV was stored.", tokens["hits"])
        if side.library is not None:
            yield from self._of_index(side.library)
        following = side.following
        alive = following is not None and not following.stopped
        restarts = 0 if following is None else following.restarts
        yield state("watcher_alive", "Whether changes of the documents are noticed.", alive)
        yield total("watcher_restarts", "Times the watcher was started again.", restarts)

    def _of_index(self, library: Library) -> Iterator[Metric]:
        manifest = library.retriever.index.manifest
        sizes, newest_s = _sizes(library.kv.directory.parents[1])
        changed_s, text = self._changed_s or newest_s, "Whether documents are still to be indexed."
        yield state("index_files", "Files in the index.", manifest.files)
        yield state("index_chunks", "Chunks in the index.", manifest.chunks)
        yield state("index_bytes", "Bytes on disk, of the index and of stored KV.", sizes, "of")
        yield state("index_changed_timestamp_seconds", "When the index last changed.", changed_s)
        yield state("index_incomplete", text, bool(library.left))
        yield state("files_skipped", "Files that could not be read.", self._skipped)

    def page(self, request: Request) -> Response:
        """Respond with all metrics as Prometheus's text. Not async: starlette uses a thread."""
        page = generate_latest(self.registry)
        return Response(page, headers={"Content-Type": CONTENT_TYPE_LATEST})


class DeviceMetrics(Metrics):
    """The metrics of a device; call `take` with each trace record, to count both sides' drafts."""

    def __init__(self, skipped: int = 0) -> None:
        super().__init__(skipped, OF_DEVICE)
        self._first = self.histogram("time_to_first_token_seconds", "Of each answer.", FIRST_S)
        self._between = self.histogram("inter_token_latency_seconds", "Of targets.", BETWEEN_S)

    def take(self, record: Record) -> None:
        match record.event:
            case Drafted():
                self.count("spec_decode_num_draft_tokens", {"device": 1})
            case BlockSent(tokens=tokens):
                self.count("spec_decode_num_draft_tokens", {"device": tokens})
            case MessageReceived(message=message) if message == DRAFT:
                self.count("spec_decode_num_draft_tokens", {"cloud": 1})
            case _:
                pass

    def count_answer(self, answered: Answer | None) -> None:
        """Count an answer at its end, with its times, tokens and bytes; None if it failed."""
        if answered is None:
            self.count("answers", {"error": 1})
            return
        answer, ledger = answered.decoded, answered.ledger
        counts = AnswerCounts.of(answer.records)
        for seconds in counts.first_token_s:
            self._first.observe(seconds)
        for part in answered.parts:
            for (before, _), (after, _) in pairwise(part.decoded.decisions):
                self._between.observe(after - before)
        bits = {each: ledger.get(f"{each}_bits") or 0.0 for each in ("evidence", "revealed")}
        alone = {None: "all", 0: "none"}.get(counts.alone_from, "part")
        self.count("answers", {answer.finish.value: 1})
        self.count("answers_together", {alone: 1})
        self.count("generation_tokens", {None: counts.tokens})
        self.count("compared_tokens", counts.compared)
        self.count("spec_decode_num_accepted_tokens", counts.accepted)
        self.count("waited_seconds", counts.waited_s)
        self.count("disclosed_bits", bits)
        self.count(
            "disclosed_tokens", {each: ledger[f"tokens_{each}"] for each in ("sent", "withheld")}
        )
        passed = {"sent": answer.bytes_sent, "received": answer.bytes_received}
        self.count("answer_bytes", passed)

    def watch_device(self, device: Device, admission: Admission, places: Places) -> None:
        """From now on, report the device's connections, queue and HTTP clients at each scrape."""

        def read() -> Iterator[Metric]:
            links = device.connectors.items()
            peers = {name: link.peer for name, link in links}
            trips = {name: peer.round_trip_s for name, peer in peers.items() if peer}
            there = {name: peer is not None for name, peer in peers.items()}
            again = {name: link.reconnections for name, link in links}
            open_ = {n: len(peer.connection.sessions) if peer else 0 for n, peer in peers.items()}
            yield state("round_trip_seconds", "To the other side, smoothed.", trips, "peer")
            yield state("connected", "Whether the other side is connected.", there, "peer")
            yield total("reconnections", "Reconnections after a lost connection.", again, "peer")
            yield state("sessions", "Sessions open with the other side.", open_, "peer")
            yield state("num_requests_running", "Answers under way.", admission.running)
            yield state("num_requests_waiting", "Requests in the queue.", admission.waiting)
            yield state("http_connections", "HTTP connections that are open.", places.open)
            yield total("http_connections_refused", "Those without a place.", places.refused)

        self.watch(device.side, read)


class CloudStatus(Metrics):
    """The health and metrics pages of a cloud, which have no private data.

    Call `take` with each trace record of the cloud's side, to count the ended answers.
    """

    def take(self, record: Record) -> None:
        if isinstance(record.event, AnswerClosed):
            self.count("answers", {record.event.finish: 1})

    @asynccontextmanager
    async def pages(
        self, where: StatusSettings, on_ready: Callable[[str], None], cloud: Cloud
    ) -> AsyncIterator[None]:
        """Serve /health, /ready and /metrics in this context; call `on_ready` with the URL."""

        async def ready(request: Request) -> Response:
            try:
                cloud.admission.check_room()
            except BusyError as error:
                return JSONResponse({"ready": False, "reason": error.text}, 503)
            return JSONResponse({"ready": True})

        self.watch(cloud.side, lambda: _of_cloud(cloud))
        pages = {"/health": health, "/ready": ready, "/metrics": self.page}
        app = Starlette(routes=[Route(path, page) for path, page in pages.items()])
        host, port = where.http_host, where.http_port or 0
        with listen_on(host, port) as listening:
            async with serving(app, listening, None, Places(HttpBounds())):
                on_ready(url_of(host, listening))
                yield


async def health(request: Request) -> Response:
    """Respond `{"status": "ok"}`: the process is alive."""
    return JSONResponse({"status": "ok"})


def _of_cloud(cloud: Cloud) -> Iterator[Metric]:
    admission, handshakes = cloud.admission, cloud.admission.handshakes
    yield state("devices", "Devices that are connected.", admission.devices)
    yield state("sessions", "Sessions that devices have open.", admission.sessions)
    yield state("handshakes", "Connections that have not authenticated yet.", len(handshakes))
    yield total("handshakes_failed", "Those that ended before.", handshakes.failed)
    yield total("device_connections", "Connections and reconnections.", admission.admitted)
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
