"""Numbers of one side, device or cloud, that are read when Prometheus asks: engine and index."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import accumulate
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dragonrt.errors import DragonError
from dragonrt.node.engine import Engine
from dragonrt.node.library import Library
from dragonrt.node.local_side import LocalSide
from retrieval import Report

PREFIX = "dragonrt_"
BATCHES = (1, 2, 4, 8, 16, 32, 64)


class ReadWhenAsked(Collector):
    """Metrics that are computed for each page."""

    def __init__(self, registry: CollectorRegistry, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        return self._read()


def gauge(
    name: str,
    text: str,
    values: Mapping[str, float] | float,
    label: str | None = None,
    kind: type[GaugeMetricFamily | CounterMetricFamily] = GaugeMetricFamily,
) -> Metric:
    """Return a metric with its value, or with one for each value of `label`."""
    family = kind(PREFIX + name, text, labels=[] if label is None else [label])
    for of, value in values.items() if isinstance(values, Mapping) else [(None, values)]:
        family.add_metric([] if of is None else [of], value)
    return family


counter = partial(gauge, kind=CounterMetricFamily)
"""A counter's name ends in _total where it is printed."""


class IndexNews:
    """What the updates of an index said last; `heard` gets every report of them."""

    def __init__(self, skipped: int = 0) -> None:
        self.skipped = skipped
        self.updates = {"done": 0, "failed": 0}
        self.changed_s: float | None = None

    def heard(self, report: Report | DragonError) -> None:
        """Count an update of the index, or what kept it from coming about."""
        failed = isinstance(report, DragonError)
        self.updates["failed" if failed else "done"] += 1
        if isinstance(report, Report):
            self.skipped, self.changed_s = len(report.skipped), time.time()  # a date


def side_metrics(side: LocalSide, news: IndexNews) -> Iterator[Metric]:
    """Read the numbers of a side; sizes are of files, so not on the event loop."""
    yield from _of_engine(side.engine)
    if side.library is not None:
        yield from _of_index(side.library, news)
    following = side.following
    alive, restarts = (0, 0) if following is None else (not following.stopped, following.restarts)
    yield gauge("watcher_alive", "Whether changes of the documents are noticed.", alive)
    yield counter("watcher_restarts", "Times the watcher was started again.", restarts)


def _of_engine(engine: Engine) -> Iterator[Metric]:
    yield gauge("engine_answers", "Answers that are open on the model.", engine.answers)
    yield gauge("engine_queue", "Readings that share the next forward.", engine.queued)
    sizes = dict(engine.batches)
    of_bucket = [
        sum(count for size, count in sizes.items() if low < size <= high)
        for low, high in zip((0, *BATCHES), (*BATCHES, float("inf")), strict=True)
    ]
    names = [*map(str, BATCHES), "+Inf"]
    buckets = [*zip(names, map(float, accumulate(of_bucket)), strict=True)]
    total = sum(size * count for size, count in sizes.items())
    yield HistogramMetricFamily(
        PREFIX + "batch_size", "Readings that shared a forward.", buckets=buckets, sum_value=total
    )


def _of_index(library: Library, news: IndexNews) -> Iterator[Metric]:
    manifest, directory = library.retriever.index.manifest, library.kv.directory.parents[1]
    sizes, changed_s = _sizes(directory)
    yield gauge("index_files", "Files in the index.", manifest.files)
    yield gauge("index_chunks", "Chunks in the index.", manifest.chunks)
    yield gauge("index_bytes", "On disk, of the index and of stored KV.", sizes, "of")
    newest_s = news.changed_s or changed_s
    yield gauge("index_changed_timestamp_seconds", "When the index last changed.", newest_s)
    about = "Whether documents are still to be indexed."
    yield gauge("index_incomplete", about, library.incomplete)
    yield gauge("files_skipped", "Files that could not be read.", news.skipped)
    yield counter("index_updates", "Updates of the index, by how they ended.", news.updates, "end")


def _sizes(directory: Path) -> tuple[dict[str, float], float]:
    """Bytes of the index and of its KV, and when the index's newest file was written."""
    sizes, newest_s = {"index": 0.0, "kv": 0.0}, 0.0
    for folder, _, files in os.walk(directory):
        of = "index" if Path(folder) == directory else "kv"
        for name in files:
            with suppress(OSError):  # another thread has deleted it
                found = Path(folder, name).stat()
                sizes[of] += found.st_size
                newest_s = max(newest_s, found.st_mtime if of == "index" else 0.0)
    return sizes, newest_s
