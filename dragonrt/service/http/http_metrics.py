"""What Prometheus reads: a fold over what happens on this side, and over answers that are over."""

from collections.abc import Iterator
from itertools import pairwise

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import Metric

from dragonrt.node.main import Device
from dragonrt.service.conversation import Reply
from dragonrt.service.http.admission import Admission
from dragonrt.service.http.bounded_http import Places
from dragonrt.service.http.side_metrics import (
    IndexNews,
    ReadWhenAsked,
    counter,
    gauge,
    side_metrics,
)
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import BlockSent, Drafted, LinkProbed, MessageReceived, Record
from dragonrt.wire.messages import Draft

DRAFT = Draft.__name__.lower()
FIRST_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 30)
BETWEEN_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 5)


class HttpMetrics:
    """Numbers of one process; `take` is a sink for every record of its side."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has none
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counted(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"dragonrt_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"dragonrt_{name}", text, buckets=buckets, registry=registry)

        def settable(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"dragonrt_{name}", text, labels, registry=registry)

        self._answers = counted("answers", "Answers that are over, by how they ended.", "finish")
        self._refused = counted("refused", "Requests refused, by status.", "status")
        self._tokens = counted("tokens", "Target tokens.")
        self._first = histogram(
            "time_to_first_token_seconds", "From the question to its first token.", FIRST_S
        )
        self._between = histogram(
            "time_between_tokens_seconds", "From a target token to the next.", BETWEEN_S
        )
        self._drafted = counted("drafted_tokens", "Tokens that a side drafted.", "side")
        self._compared = counted(
            "compared_tokens", "Drafted tokens that a decision looked at.", "side"
        )
        self._accepted = counted("accepted_tokens", "Drafted tokens that stand.", "side")
        self._waited = counted(
            "waited_seconds",
            "Before decisions: for the own draft, the other side's, or its decision.",
            "cause",
        )
        self._bytes = counted("answer_bytes", "Between the sides during answers.", "direction")
        self._rtt = settable("round_trip_seconds", "To the other side, as last probed.", "peer")
        self._together = counted(
            "answers_together",
            "Answers that are over, by how much of them others took part in.",
            "others",
        )
        self._bits = counted(
            "disclosed_bits",
            "Evidence in the tokens of answers, and what they revealed where that is bounded.",
            "kind",
        )
        self._told = counted("disclosed_tokens", "Tokens that left the device, or did not.", "kind")

    def take(self, record: Record) -> None:
        """The next record of this side."""
        match record.event:
            case Drafted():
                self._drafted.labels("device").inc()
            case BlockSent(tokens=tokens):
                self._drafted.labels("device").inc(tokens)
            case MessageReceived(message=message) if message == DRAFT:
                self._drafted.labels("cloud").inc()
            case LinkProbed(rtt=float(rtt)):
                self._rtt.labels(record.peer or "cloud").set(rtt)
            case _:
                pass

    def over(self, reply: Reply | None) -> None:
        """An answer is over; None if it failed."""
        if reply is None:
            self._answers.labels("error").inc()
            return
        told, times = AnswerCounts.of(reply.answer.records), self._times(reply)
        counts = told.counts
        self._answers.labels(reply.answer.finish.value).inc()
        self._tokens.inc(counts.tokens)
        for seconds in counts.first_token_s:
            self._first.observe(seconds)
        for before, after in pairwise(times):
            self._between.observe(after - before)
        for side in counts.compared:
            self._compared.labels(side).inc(counts.compared[side])
            self._accepted.labels(side).inc(counts.accepted[side])
        for cause, seconds in counts.waited_s.items():
            self._waited.labels(cause).inc(seconds)
        alone = {None: "all", 0: "none"}.get(told.alone_from, "part")
        self._together.labels(alone).inc()
        ledger = reply.ledger()
        for kind in ("evidence", "revealed"):
            self._bits.labels(kind).inc(max(0.0, ledger.get(f"{kind}_bits") or 0.0))
        for kind in ("sent", "withheld"):
            self._told.labels(kind).inc(ledger[f"tokens_{kind}"])
        self._bytes.labels("sent").inc(reply.answer.bytes_sent)
        self._bytes.labels("received").inc(reply.answer.bytes_received)

    def refused(self, status: int) -> None:
        """A request got this instead of an answer."""
        self._refused.labels(str(status)).inc()

    def read_from(
        self, device: Device, admission: Admission, places: Places, news: IndexNews
    ) -> None:
        """Have each page tell how these are then, too."""

        def now() -> Iterator[Metric]:
            yield from _of_device(device)
            yield gauge("answers_running", "Answers under way.", admission.running)
            yield gauge("answers_waiting", "Requests that wait for their turn.", admission.waiting)
            yield gauge("http_connections", "HTTP connections that are open.", places.open)
            yield counter(
                "http_connections_refused",
                "HTTP connections for which was no place.",
                places.refused,
            )
            yield from side_metrics(device.side, news)

        ReadWhenAsked(self._registry, now)

    def page(self) -> bytes:
        """The text that Prometheus reads. It looks at files: not on the event loop."""
        return generate_latest(self._registry)

    @staticmethod
    def _times(reply: Reply) -> Iterator[float]:
        return (t for t, _ in reply.answer.decisions)


def _of_device(device: Device) -> Iterator[Metric]:
    """How the other sides are connected."""
    links = device.connectors
    peers = {name: link.peer for name, link in links.items()}
    there = {name: peer is not None for name, peer in peers.items()}
    again = {name: link.reconnections for name, link in links.items()}
    sessions = {name: len(peer.connection.sessions) if peer else 0 for name, peer in peers.items()}
    yield gauge("connected", "Whether the other side is connected.", there, "peer")
    yield counter("reconnections", "Lost connections that were made again.", again, "peer")
    yield gauge("sessions", "Sessions open with the other side.", sessions, "peer")
